"""Opening: from the requests that the log holds to the columns of uploads, on one processor or on all.

It knows nothing of a store or of tallies, so that a process that opens imports little.
"""

from .processes import OpeningProcesses
from .requests import Kind, Open, Opened, Opener, Sheaf, open_requests, request_number, upload_number

__all__ = [
    "Kind",
    "Open",
    "Opened",
    "Opener",
    "OpeningProcesses",
    "Sheaf",
    "open_requests",
    "request_number",
    "upload_number",
]
