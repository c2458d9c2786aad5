"""An app that asks what people drink, and never tells.

    $ changeling dev --answers tea,coffee,neither     # in another terminal; it prints the three things to pass here
    $ python examples/app.py http://127.0.0.1:8080 AUTHORITY SURVEY

Records an answer, changes it, and reports as periods close. The server learns neither what the answer was nor that it
changed; what it publishes shows in the other terminal.
"""

import argparse
import time

from changeling_client import Client, ClientError, Recorded

DEVELOPMENT = 30_000
"""The epsilon of a development survey, which protects nobody. An app for people would allow 10 at most."""


def main() -> None:
    """Takes part for half a minute."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("server", help="the server's URL")
    parser.add_argument("authority", help="the survey authority's public key, in hex: an app pins it")
    parser.add_argument("survey", help="the survey's id, in hex: an app names the surveys it takes part in")
    parser.add_argument("--seconds", type=int, default=30)
    wanted = parser.parse_args()

    try:
        authority = [bytes.fromhex(wanted.authority)]
        client = Client("app.db", server=wanted.server, authority=authority, max_epsilon=DEVELOPMENT)
        survey = client.join(wanted.survey)
    except (ClientError, ValueError) as error:
        raise SystemExit(f"this app takes no part: {error}") from None
    with client:
        print(survey.survey.question)

        first, second = survey.survey.answers[:2]
        survey.record(first)  # on disk when this returns
        for elapsed in range(wanted.seconds):
            if elapsed == wanted.seconds // 2 and survey.record(second) is Recorded.FROZEN:
                print("no change is left: the answer stays what it was")
            flushed = client.flush()  # whenever the app runs: answers what is due, sends what waits
            if flushed.sent or flushed.trouble:
                print(f"{flushed.sent} sent, {flushed.waiting} waiting", flushed.trouble or "")
            time.sleep(1)

        print(f"the answer on this device is {survey.answer()}; it never left it")
        print(survey.ledger())


if __name__ == "__main__":
    main()
