"""A call that a model could not write down properly: recovering it keeps everything else of the turn."""

import json

from midspan._loop.turn import recover_malformed_call
from midspan._types.exchange import FinishReason
from midspan._types.parts import Opaque, Text, ToolCall
from midspan._types.specs import ToolSpec
from midspan.providers.gemini import decode
from midspan.providers.gemini.capabilities import capabilities_of
from midspan.providers.gemini.encode import SKIP_SIGNATURE, encode_message


def test_recovered_turn_keeps_signatures_and_unknown_parts() -> None:
    parts = [
        {"text": "Let me look.", "thoughtSignature": "SIG"},
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"text": "hm", "thought": True},
    ]
    candidate = {
        "content": {"role": "model", "parts": parts},
        "finishReason": "MALFORMED_FUNCTION_CALL",
        "finishMessage": "Malformed function call: print(default_api.f(a=1))",
    }
    response = decode.response(json.dumps({"candidates": [candidate]}).encode())
    recovered = recover_malformed_call(response, (ToolSpec("f"),))
    assert recovered.finish_reason is FinishReason.END
    assert recovered.message.parts[:3] == response.message.parts
    assert [type(part) for part in recovered.message.parts[:2]] == [Text, Opaque]
    call = recovered.message.parts[-1]
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("f", {"a": 1})
    sent = json.loads(bytes(encode_message(recovered.message, capabilities_of("gemini-3.8-flash"))))["parts"]
    assert sent == [
        *parts,
        {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": SKIP_SIGNATURE},
    ]
