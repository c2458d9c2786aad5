# mypy: disable-error-code="list-item, arg-type, dict-item, index, comparison-overlap, return-value"
"""The contract of a store, of what a server runs on: surveys, tokens, sealing keys, and the time that was believed."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from threading import Barrier

import pytest
from changeling_protocol import EarlyEnd, SealingKey, SurveyId, UnixSeconds, key_id

from ..errors import StoreError
from ..store import (
    AtRest,
    KeptTime,
    KeyState,
    PublishedKey,
    Store,
    StoredSurvey,
    TokenScope,
    hash_of,
    new_token,
    published,
)
from .stores import AUTHORITY, OTHER, SURVEY, OpenedStore, Opener, publish, publish_surveys, sql


class PublishingContract(OpenedStore):
    """The half of the contract that operators need."""

    def test_a_survey_stays_as_it_was_published_first(self, store: Store, beside: Store) -> None:
        """By whichever process; the second is told that it was there."""
        with store.transaction() as writing:
            assert writing.add_survey(SURVEY, b"signed")
        with beside.transaction() as writing:
            assert not writing.add_survey(SURVEY, b"signed otherwise")
            assert writing.add_survey(OTHER, b"too")
        with store.view() as view:
            assert {id_: each.signed for id_, each in view.surveys().items()} == {OTHER: b"too", SURVEY: b"signed"}

    def test_whether_results_are_public_is_changed_and_the_survey_is_not(self, store: Store, beside: Store) -> None:
        """A new survey's are not; publishing it again leaves that unless it says otherwise."""
        for public, shown in ((None, False), (True, True), (None, True), (False, False)):
            with beside.transaction() as writing:
                writing.add_survey(SURVEY, b"signed", public)
            with store.view() as view:
                assert view.surveys() == {SURVEY: StoredSurvey(SURVEY, b"signed", shown)}

    def test_a_token_is_known_by_its_hash_until_it_is_revoked(self, store: Store, beside: Store) -> None:
        """With its name, scopes and date, to every process."""
        first, second = new_token(), new_token()
        with store.transaction() as writing:
            kept = writing.add_token(first, "me", {TokenScope.READ, TokenScope.FOLD}, UnixSeconds(2.5))
            other = writing.add_token(second, "tea app", {TokenScope.UPLOAD}, UnixSeconds(1.0))
        with beside.view() as view:
            assert list(view.tokens().items()) == [(hash_of(second), other), (hash_of(first), kept)]
        assert (kept.name, kept.scopes, kept.created) == ("me", {TokenScope.READ, TokenScope.FOLD}, 2)
        with beside.transaction() as writing:
            assert writing.revoke_token(kept.id) == kept
            with pytest.raises(ValueError, match="there is no token"):
                writing.revoke_token(kept.id)
        with store.view() as view:
            assert list(view.tokens()) == [hash_of(second)]

    def test_an_early_end_stays_as_it_was_published_first(self, store: Store, beside: Store) -> None:
        """The same again changes nothing; one after another period is refused, whichever process brings it."""
        with store.transaction() as writing:
            with pytest.raises(ValueError, match="not published"):
                writing.add_early_end(EarlyEnd(SURVEY, 3), b"signed")
            publish_surveys(writing)
            assert writing.add_early_end(EarlyEnd(SURVEY, 3), b"signed")
        with beside.transaction() as writing:
            assert not writing.add_early_end(EarlyEnd(SURVEY, 3), b"signed")
            assert writing.add_early_end(EarlyEnd(OTHER, 4), b"too")
            with pytest.raises(ValueError, match="ended after period 3 before"):
                writing.add_early_end(EarlyEnd(SURVEY, 4), b"signed otherwise")
        with store.view() as view:
            assert [each.end for each in view.surveys().values()] == [EarlyEnd(OTHER, 4), EarlyEnd(SURVEY, 3)]
            assert view.surveys(SURVEY)[SURVEY].signed_end == b"signed"
            assert view.surveys(SurveyId(b"nobody's survey.")) == {}

    def test_of_many_who_publish_one_survey_one_is_the_first(self, open_store: Opener, store: Store) -> None:
        """Each in a transaction that goes on after it was told so."""

        def publish(number: int) -> bool:
            with closing(open_store()) as own, own.transaction() as writing:
                first = writing.add_survey(SURVEY, b"signed")
                writing.add_survey(bytes([number]) * 16, b"own")
            return first

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(publish, range(4))) == 1
        with store.view() as view:
            assert len(view.surveys()) == 5

    def test_a_key_is_published_once_and_its_private_half_destroyed_when_it_is_over(
        self, store: Store, beside: Store
    ) -> None:
        """Published again as it is it changes nothing; with other dates, or not made here, it is refused."""
        with store.transaction() as writing:
            key = SealingKey(writing.make_key(), 10, 20)
            unsigned = writing.make_key()
        signed = key.signed_by(AUTHORITY)
        with beside.transaction() as writing:
            assert writing.publish_key(key, signed)
        with store.transaction() as writing:
            assert not writing.publish_key(key, signed)
            with pytest.raises(ValueError, match="did not make"):
                writing.publish_key(SealingKey(bytes(31) + b"\7", 0, 1), b"signed")
            with pytest.raises(ValueError, match="other dates"):
                writing.publish_key(SealingKey(key.public, 10, 21), b"signed otherwise")
        with store.view() as view:
            assert published(view.sealing_keys()) == {key.id: PublishedKey(key, signed)}
            assert len(view.private_keys()) == 2
            assert not view.anything_overdue(20_000, {}, 0)
            assert view.anything_overdue(20_001, {}, 0)
        with store.transaction() as writing:
            assert [writing.delete_overdue(now, {}, 5) for now in (20_005, 20_006)] == [0, 1]
        store.forget_overwritten(changed=True)
        with beside.view() as view:
            (left,) = view.private_keys().values()
            assert left.public_key().public_bytes_raw() == unsigned
            assert published(view.sealing_keys()) == {}

    def test_after_a_key_is_refused_nothing_is_left_that_reads(self, store: Store) -> None:
        """Whoever holds the refusal, what was written is put to its place: at once, and not when that is forgotten."""
        with store.transaction() as writing:
            first, *_ = sorted((writing.make_key() for _ in range(8)), key=key_id)
            writing.publish_key(SealingKey(first, 10, 20), b"signed")
        with pytest.raises(ValueError, match="other dates") as refused, store.transaction() as writing:
            writing.publish_key(SealingKey(first, 10, 21), b"signed otherwise")
        store.write_back()
        assert refused.value.__traceback__

    def test_of_published_keys_one_is_valid_at_a_time(self, store: Store) -> None:
        """One that would be valid along with another is refused with the dates to use; what joins is not."""
        with store.transaction() as writing:
            middle, *others = [writing.make_key() for _ in range(4)]
            assert publish(writing, SealingKey(middle, 1000, 2000))
            for begins, expires in ((0, 1001), (1999, 3000), (1200, 1300), (0, 9000)):
                with pytest.raises(
                    ValueError, match=r"--begins 1970-01-01T00:33:20Z or later, .* 1970-01-01T00:16:40Z or e"
                ):
                    publish(writing, SealingKey(others[0], begins, expires))
            assert publish(writing, SealingKey(others[0], 2000, 3000))
            assert publish(writing, SealingKey(others[1], 5, 1000))
            assert len(published(writing.sealing_keys())) == 3

    def test_of_keys_that_many_publish_at_once_one_is_valid_at_a_time(self, open_store: Opener, store: Store) -> None:
        """Whoever is second is refused, though the first was not there when it began."""
        with store.transaction() as writing:
            publics = [writing.make_key() for _ in range(4)]
        at_once = Barrier(4)

        def publish_own(public: bytes) -> bool:
            with closing(open_store()) as own, suppress(ValueError):
                at_once.wait(100)
                with own.transaction() as writing:
                    return publish(writing, SealingKey(public, 10, 20))
            return False

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(publish_own, publics)) == 1
        with store.view() as view:
            assert len(published(view.sealing_keys())) == 1

    def test_the_life_of_a_key(self, store: Store) -> None:
        """From unsigned over pending and active to expired; its last second is one in which it is active. Without its
        private half it is listed no more, and one that never was is not published."""
        with store.transaction() as writing:
            key, other = (SealingKey(writing.make_key(), begins, begins + 10) for begins in (10, 20))
            publish(writing, key)
            for now, state in ((9, "pending"), (10, "active"), (20, "active"), (21, "expired")):
                states = {each.id: each.state(now).value for each in writing.sealing_keys()}
                assert states == {key.id: state, other.id: "unsigned"}
        sql(store, "UPDATE keys SET private = NULL")
        with store.transaction() as writing:
            assert published(writing.sealing_keys()) == {}
            with pytest.raises(ValueError, match="private half is not in this store"):
                publish(writing, other)
            assert {each.state(25) for each in writing.sealing_keys()} == {KeyState.DESTROYED}

    def test_private_keys_are_encrypted_under_the_store_key(self, open_store: Opener, store: Store) -> None:
        """They open under it alone, also once it was replaced; what is stored says nothing of them."""
        first, second = (AtRest(bytes([number]) * 32) for number in (1, 2))
        under = {key: open_store(key) for key in (first, second)}
        with store.transaction() as writing:
            writing.make_key()
        with under[first].transaction() as writing:
            assert [writing.encrypt_keys(first), writing.encrypt_keys(first)] == [1, 0]
            writing.make_key()
            private = writing.private_keys()
            assert not any(each.in_clear for each in writing.sealing_keys())
        for other in (store, under[second]):
            with other.transaction() as writing, pytest.raises(StoreError, match="store key"):
                writing.private_keys()
            with other.transaction() as writing, pytest.raises(StoreError, match="store key"):
                writing.make_key()
        with under[first].transaction() as writing:
            assert writing.encrypt_keys(second) == 2
            with pytest.raises(StoreError, match="another store key"):
                writing.private_keys()
        with under[second].view() as view:
            again = view.private_keys()
        assert {id_: each.private_bytes_raw() for id_, each in again.items()} == {
            id_: each.private_bytes_raw() for id_, each in private.items()
        }
        stored = [kept for (kept,) in sql(store, "SELECT private FROM keys")]
        assert not any(each.private_bytes_raw() in kept for each in private.values() for kept in stored)
        for each in under.values():
            each.close()

    def test_the_time_that_was_kept_is_there_for_the_next_process(self, store: Store, beside: Store) -> None:
        """None at first; then the last that was kept, also if it is earlier."""
        for kept in (KeptTime(0, False), KeptTime(2**41, True), KeptTime(2**40, False)):
            with store.transaction() as writing:
                if kept.told:
                    writing.keep_time(kept)
            with beside.view() as view:
                assert view.kept_time()[:2] == kept[:2]
