"""An app that asks what people drink, and never tells.

    $ changeling dev --answers tea,coffee,neither     # in another terminal; it prints the three things to pass here
    $ python examples/app.py http://127.0.0.1:8080 AUTHORITY SURVEY

Records an answer, changes it, and reports as periods close. The server learns neither what the answer was nor that it
changed; what it publishes shows in the other terminal.
"""

import argparse
import time

from changeling_client import Client, ClientError, Recorded


def main() -> None:
    """Takes part for half a minute."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("server", help="the server's URL")
    parser.add_argument("authority", help="the survey authority's public key, in hex: an app pins it")
    parser.add_argument("survey", help="the survey's id, in hex: an app names the surveys it takes part in")
    parser.add_argument("--seconds", type=int, default=30)
    wanted = parser.parse_args()

    try:
        client = Client(
            path="app.db",
            server=wanted.server,
            authority=[bytes.fromhex(wanted.authority)],
            max_epsilon=10,
            development=True,  # this survey protects nobody, and counts nothing
            strict=True,  # a wrong answer raises
            background=False,  # this script flushes by itself, to show what comes of it
        )
        survey = client.join(wanted.survey)  # touches no network
    except (ClientError, ValueError) as error:
        raise SystemExit(f"this app takes no part: {error}") from None
    with client:
        flushed = client.flush()
        if survey.survey is None:
            raise SystemExit(f"this app takes no part: {survey.reason or flushed.trouble}")
        print(survey.survey.question)

        first, second = survey.survey.answers[:2]
        for elapsed in range(wanted.seconds):
            flushed = client.flush()  # by a timer, never because of an answer: answers what is due, sends what waits
            if flushed.sent or flushed.trouble:
                print(f"{flushed.sent} sent, {flushed.waiting} waiting", flushed.trouble or "")
            time.sleep(0.8)
            answer = {0: first, wanted.seconds // 2: second}.get(elapsed)
            if answer is not None and survey.record(answer) is Recorded.FROZEN:  # on disk when this returns
                print("no change is left: the answer stays what it was")
            time.sleep(0.2)

        print(f"the answer on this device is {survey.answer()}; it never left it")
        print(survey.ledger())


if __name__ == "__main__":
    main()
