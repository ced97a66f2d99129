import pytest

from wasat.errors import ConfigError
from wasat.types.parts import Blob, is_local_id, local_id


def test_a_blob_gives_back_the_bytes_it_was_made_of() -> None:
    assert Blob.of(b"\x00\xff\xfe", "image/png").data == b"\x00\xff\xfe"


def test_a_blob_reads_the_url_safe_alphabet_too() -> None:
    assert Blob("image/png", base64="AP_-").data == b"\x00\xff\xfe"


def test_a_blob_that_is_elsewhere_says_so() -> None:
    with pytest.raises(ConfigError, match=r"gs://b/x\.png"):
        _ = Blob("image/png", url="gs://b/x.png").data


def test_ids_of_ours_are_unique_and_known_as_ours() -> None:
    ids = {local_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(is_local_id(id) for id in ids)
    assert not is_local_id("call_1")
