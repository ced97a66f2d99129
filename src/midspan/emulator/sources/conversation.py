"""The conversation so far, as scripts look at it."""

from functools import cached_property

from midspan.emulator.checking import Question
from midspan.providers.gemini.wire import Content, GenerateContentRequest


class Conversation:
    """What was asked; the parts of it are read when somebody wants to see them."""

    def __init__(self, question: Question, *, setup: GenerateContentRequest, cached: tuple[Content, ...] = ()) -> None:
        self.question = question
        self.model = question.family.name
        self.setup = setup
        """System, tools and modes: those of the cache, where the request names one."""
        self._cached = cached

    @property
    def step(self) -> int:
        """How many turns the model has had."""
        return self.question.count.steps

    @cached_property
    def functions(self) -> tuple[str, ...]:
        return tuple(one.name or "" for tool in self.setup.tools or () for one in tool.function_declarations or ())

    @cached_property
    def contents(self) -> tuple[Content, ...]:
        return (*self._cached, *(self.question.request().contents or ()))

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the functions whose results came last."""
        turns = self.question.turns
        return tuple(result.name for result in turns[-1].results) if turns else ()

    @cached_property
    def last_text(self) -> str:
        """What the user said last, in words."""
        for content in reversed(self.contents):
            text = "".join(part.text for part in content.parts or () if part.text is not None)
            if content.role != "model" and text:
                return text
        return ""

    @cached_property
    def system_text(self) -> str:
        instruction = self.setup.system_instruction
        return "".join(part.text or "" for part in instruction.parts or ()) if instruction is not None else ""
