"""Tools of many domains that the offline model is shown: declarations, and what they answer."""

from collections.abc import Callable
from typing import Any

from midspan.types.parts import ToolCall, ToolResult
from midspan.types.specs import ToolSpec


def tool(name: str, description: str, required: str, /, **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": required.split()}
    return ToolSpec(name, description, schema)


def text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def number(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "number", "description": description, **more}


READY = (
    tool(
        "get_weather",
        "The current weather or the forecast for a place.",
        "location",
        location=text("A town or place in any language, for example Paris or 東京."),
        date=text("The day of the forecast: today, tomorrow or a date such as 2025-03-01."),
        detail=text("How much to tell.", enum=["brief", "full"], default="brief"),
        hourly={"type": "boolean", "description": "Tell the weather hour by hour.", "default": False},
    ),
    tool(
        "get_time",
        "The current date and time in a time zone.",
        "zone",
        zone=text("A city or a zone of the IANA database, for example Europe/Paris or Tokyo."),
    ),
    tool(
        "calculate",
        "Calculate the value of an arithmetic expression.",
        "expression",
        expression=text("The expression, for example (2 + 3) * 4."),
    ),
)

DOMAINS = (
    tool(
        "list_orders",
        "List the customer's orders, newest first.",
        "",
        status=text("Only orders in this state.", enum=["open", "shipped", "delivered", "cancelled"]),
    ),
    tool("cancel_order", "Cancel an order that was not shipped yet.", "order_id", order_id=text("Id of the order.")),
    tool("find_contact", "Look up a person in the address book.", "name", name=text("Name of the person.")),
    tool(
        "send_message",
        "Send a text message to a contact.",
        "contact_id text",
        contact_id=text("Id of the contact."),
        text=text("What the message says."),
    ),
    tool(
        "set_light",
        "Switch the light of a room on or off, or dim it.",
        "room state",
        room=text("The room.", enum=["kitchen", "bedroom", "living room", "bathroom"]),
        state=text("On or off.", enum=["on", "off"]),
        brightness={"type": "integer", "description": "Brightness in percent.", "minimum": 1, "maximum": 100},
    ),
    tool(
        "search_books",
        "Search the library's catalogue for books.",
        "",
        title=text("Words of the title."),
        author=text("Name of the author."),
        limit={"type": "integer", "description": "How many books to return at most.", "default": 10},
    ),
    tool(
        "convert_units",
        "Convert a quantity from one unit of measurement to another.",
        "value from_unit to_unit",
        value=number("The quantity."),
        from_unit=text("The unit it is in."),
        to_unit=text("The unit it shall be in."),
    ),
    tool(
        "translate_text",
        "Translate a text into another language.",
        "text target_language",
        text=text("The text to translate."),
        target_language=text("The language to translate into."),
        source_language=text("The language of the text; found out when absent."),
    ),
    tool(
        "create_reminder",
        "Create a reminder for a given day.",
        "text date",
        text=text("What to be reminded of."),
        date=text("The day: a date such as 2025-03-01, or today or tomorrow."),
        time=text("The time of day, as HH:MM."),
    ),
    tool("list_tickets", "List the open support tickets.", ""),
    tool(
        "close_ticket",
        "Close a support ticket.",
        "ticket_id",
        ticket_id=text("Id of the ticket."),
        reason=text("Why it is closed."),
    ),
    tool(
        "convert_currency",
        "Convert an amount of money from one currency to another at today's rate.",
        "amount source target",
        amount=number("How much money."),
        source=text("ISO code of the currency to convert from, for example USD."),
        target=text("ISO code of the currency to convert to, for example EUR."),
    ),
    tool(
        "find_recipes",
        "Find recipes that use certain ingredients.",
        "ingredients",
        ingredients={"type": "array", "items": {"type": "string"}, "description": "What shall be in it."},
        vegetarian={"type": "boolean", "description": "Only vegetarian recipes.", "default": False},
        max_minutes={"type": "integer", "description": "The longest cooking time in minutes."},
    ),
)


def answer(call: ToolCall) -> ToolResult:
    """What the tool says, as a run would hand it back."""
    value = _ANSWERS[call.name](call.arguments)
    return ToolResult(call.id, call.name, value, is_error=isinstance(value, dict) and "error" in value)


def _weather(given: dict[str, Any]) -> Any:
    if given["location"] == "Atlantis":
        return {"error": "no place is called Atlantis"}
    return {"location": given["location"], "current_temp_c": 18, "condition": "Partly cloudy"}


_ORDERS = [
    {"order_id": "A-1007", "item": "garden chair", "status": "open"},
    {"order_id": "A-1006", "item": "espresso machine", "status": "open"},
    {"order_id": "A-1001", "item": "desk lamp", "status": "delivered"},
]
_TICKETS = [
    {"id": 31, "title": "Printer on the second floor jams"},
    {"id": 34, "title": "VPN does not connect"},
    {"id": 38, "title": "New keyboard for Priya"},
]
_ANSWERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "get_weather": _weather,
    "get_time": lambda given: {"zone": given["zone"], "time": "2025-03-01T09:30:00"},
    "calculate": lambda given: {"expression": given["expression"], "value": 408},
    "list_orders": lambda given: [one for one in _ORDERS if given.get("status") in (None, one["status"])],
    "cancel_order": lambda given: {"order_id": given["order_id"], "status": "cancelled"},
    "find_contact": lambda given: {"id": "c-" + given["name"].lower(), "name": given["name"]},
    "send_message": lambda given: "sent",
    "set_light": lambda given: True,
    "search_books": lambda given: {"books": [{"title": "The Dispossessed", "author": "Ursula K. Le Guin"}]},
    "convert_units": lambda given: 12.43,
    "translate_text": lambda given: {"translation": "Guten Morgen"},
    "create_reminder": lambda given: {"created": given["date"]},
    "list_tickets": lambda given: {"tickets": _TICKETS},
    "close_ticket": lambda given: {"closed": given["ticket_id"]},
    "convert_currency": lambda given: {"amount": 91.2, "currency": given["target"]},
    "find_recipes": lambda given: [{"name": "Chickpea curry", "minutes": 25}],
}
