"""The words that a field of the API may hold, and the fields that only one of the two APIs has."""

from midspan.providers.gemini.capabilities import Api

_HARM = ("HARASSMENT", "HATE_SPEECH", "SEXUALLY_EXPLICIT", "DANGEROUS_CONTENT", "CIVIC_INTEGRITY", "JAILBREAK")
_OLD_HARM = ("DEROGATORY", "TOXICITY", "VIOLENCE", "SEXUAL", "MEDICAL", "DANGEROUS", "UNSPECIFIED")
_IMAGE_HARM = ("IMAGE_HATE", "IMAGE_DANGEROUS_CONTENT", "IMAGE_HARASSMENT", "IMAGE_SEXUALLY_EXPLICIT")

TYPES = ("TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
MODES = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")
THINKING_LEVELS = ("THINKING_LEVEL_UNSPECIFIED", "LOW", "MEDIUM", "HIGH", "MINIMAL")

ENUMS: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {
    ("Schema", "type"): ("Type", TYPES),
    ("FunctionCallingConfig", "mode"): ("FunctionCallingConfig.Mode", MODES),
    ("ThinkingConfig", "thinking_level"): ("ThinkingConfig.ThinkingLevel", THINKING_LEVELS),
    ("FunctionDeclaration", "behavior"): (
        "FunctionDeclaration.Behavior",
        ("UNSPECIFIED", "BEHAVIOR_UNSPECIFIED", "BLOCKING", "NON_BLOCKING"),
    ),
    ("FunctionResponse", "scheduling"): (
        "FunctionResponse.Scheduling",
        ("SCHEDULING_UNSPECIFIED", "SILENT", "WHEN_IDLE", "INTERRUPT"),
    ),
    ("SafetySetting", "category"): (
        "HarmCategory",
        tuple(f"HARM_CATEGORY_{word}" for word in (*_HARM, *_OLD_HARM, *_IMAGE_HARM)),
    ),
    ("SafetySetting", "threshold"): (
        "SafetySetting.HarmBlockThreshold",
        (
            "HARM_BLOCK_THRESHOLD_UNSPECIFIED",
            "BLOCK_LOW_AND_ABOVE",
            "BLOCK_MEDIUM_AND_ABOVE",
            "BLOCK_ONLY_HIGH",
            "BLOCK_NONE",
            "OFF",
        ),
    ),
    ("GenerationConfig", "response_modalities"): (
        "GenerationConfig.Modality",
        ("MODALITY_UNSPECIFIED", "TEXT", "IMAGE", "AUDIO", "VIDEO"),
    ),
    ("ExecutableCode", "language"): ("ExecutableCode.Language", ("LANGUAGE_UNSPECIFIED", "PYTHON")),
    ("CodeExecutionResult", "outcome"): (
        "CodeExecutionResult.Outcome",
        ("OUTCOME_UNSPECIFIED", "OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED"),
    ),
}
"""By message and field: what the type is called, and its words. A field that is not here takes any word."""

BASE64 = frozenset((("Blob", "data"), ("Part", "thought_signature"), ("GenerateContentRequest", "continuation_token")))

ONLY: dict[Api, frozenset[tuple[str, str]]] = {
    Api.DEVELOPER: frozenset(
        (
            ("Part", "tool_call"),
            ("Part", "tool_response"),
            ("Part", "part_metadata"),
            ("Tool", "file_search"),
            ("Tool", "mcp_servers"),
            ("ToolConfig", "include_server_side_tool_invocations"),
            ("FunctionResponse", "will_continue"),
            ("GenerateContentRequest", "store"),
            ("CountTokensRequest", "generate_content_request"),
        )
    ),
    Api.VERTEX: frozenset(
        (
            ("GenerateContentRequest", "model_armor_config"),
            ("GenerateContentRequest", "generation_output_config"),
            ("GenerationConfig", "audio_timestamp"),
            ("GenerationConfig", "routing_config"),
            ("GenerationConfig", "model_selection_config"),
            ("FunctionCall", "partial_args"),
            ("FunctionCall", "will_continue"),
            ("FunctionCallingConfig", "stream_function_call_arguments"),
            ("Tool", "retrieval"),
            ("Tool", "enterprise_web_search"),
            ("Tool", "parallel_ai_search"),
            ("Tool", "exa_ai_search"),
            ("SafetySetting", "method"),
            # In the Developer API's own schema language these three do not exist; there is parametersJsonSchema for it.
            ("Schema", "additional_properties"),
            ("Schema", "defs"),
            ("Schema", "ref"),
        )
    ),
}
"""Message and field: what one API has and the other one calls unknown."""
