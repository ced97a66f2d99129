"""Sixty prompts as people write them, and what a good model does with each over the tools of `sample_tools`.

They were written before the model and are not changed to suit it.
"""

from typing import Any, NamedTuple

ASK = "ask"
REFUSE = "refuse"


class Case(NamedTuple):
    """A prompt, and the calls of the whole run in order; or that it asks back, or says that nothing fits."""

    prompt: str
    expected: list[tuple[str, dict[str, Any]]] | str


def weather(location: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "get_weather", {"location": location, **more}


def time(zone: str) -> tuple[str, dict[str, Any]]:
    return "get_time", {"zone": zone}


def value_of(expression: str) -> tuple[str, dict[str, Any]]:
    return "calculate", {"expression": expression}


READY_CASES = [
    Case("What's the weather like in Paris?", [weather("Paris")]),
    Case("weather in 東京", [weather("東京")]),
    Case("Will it rain in New York tomorrow?", [weather("New York", date="tomorrow")]),
    Case("Give me the full forecast for Oslo", [weather("Oslo", detail="full")]),
    Case(
        "Hour by hour weather for Rio de Janeiro today, please", [weather("Rio de Janeiro", date="today", hourly=True)]
    ),
    Case("How's the weather in Madrid on 2025-06-14?", [weather("Madrid", date="2025-06-14")]),
    Case("What time is it in Tokyo?", [time("Tokyo")]),
    Case("Tell me the current time in Europe/Berlin", [time("Europe/Berlin")]),
    Case("what is 17 * 24?", [value_of("17 * 24")]),
    Case("Calculate (3 + 4) * 12 - 5", [value_of("(3 + 4) * 12 - 5")]),
    Case("How much is 15 plus 27?", [value_of("15 + 27")]),
    Case("What's the weather in Paris and what time is it in Tokyo?", [weather("Paris"), time("Tokyo")]),
    Case("Weather in London and Lisbon", [weather("London"), weather("Lisbon")]),
    Case("what's the weather?", ASK),
    Case("What time is it?", ASK),
    Case("Who wrote Hamlet?", REFUSE),
    Case("Write a poem about autumn leaves.", REFUSE),
    Case("hi there!", REFUSE),
    Case("Is it going to be warm in São Paulo tomorrow?", [weather("São Paulo", date="tomorrow")]),
    Case("Divide 144 by 12 and tell me the time in Sydney", [value_of("144 / 12"), time("Sydney")]),
]

LOOK_UP_ORDERS = ("list_orders", {})
LOOK_UP_TICKETS = ("list_tickets", {})

DOMAIN_CASES = [
    Case("Show me all my orders", [LOOK_UP_ORDERS]),
    Case("Which of my orders have been delivered?", [("list_orders", {"status": "delivered"})]),
    Case("Please cancel order A-1007", [("cancel_order", {"order_id": "A-1007"})]),
    Case("Cancel my order of the espresso machine", [LOOK_UP_ORDERS, ("cancel_order", {"order_id": "A-1006"})]),
    Case("Look up Priya in my contacts", [("find_contact", {"name": "Priya"})]),
    Case("Do I have the address of Tom Becker?", [("find_contact", {"name": "Tom Becker"})]),
    Case(
        'Send Anna a message saying "I am running late"',
        [("find_contact", {"name": "Anna"}), ("send_message", {"contact_id": "c-anna", "text": "I am running late"})],
    ),
    Case("Turn off the light in the kitchen", [("set_light", {"room": "kitchen", "state": "off"})]),
    Case("Switch on the bedroom light", [("set_light", {"room": "bedroom", "state": "on"})]),
    Case(
        "Turn the living room light on at 40 percent brightness",
        [("set_light", {"room": "living room", "state": "on", "brightness": 40})],
    ),
    Case(
        "Turn off the lights in the kitchen and the bathroom",
        [("set_light", {"room": "kitchen", "state": "off"}), ("set_light", {"room": "bathroom", "state": "off"})],
    ),
    Case("Turn off the light", ASK),
    Case("Do you have books by Ursula K. Le Guin?", [("search_books", {"author": "Ursula K. Le Guin"})]),
    Case(
        'Search for a book called "The Left Hand of Darkness"',
        [("search_books", {"title": "The Left Hand of Darkness"})],
    ),
    Case("Find at most five books by Toni Morrison", [("search_books", {"author": "Toni Morrison", "limit": 5})]),
    Case(
        "Convert 20 kilometers to miles",
        [("convert_units", {"value": 20, "from_unit": "kilometers", "to_unit": "miles"})],
    ),
    Case(
        "How many ounces are 2.5 pounds?",
        [("convert_units", {"value": 2.5, "from_unit": "pounds", "to_unit": "ounces"})],
    ),
    Case(
        "What is 350 fahrenheit in celsius?",
        [("convert_units", {"value": 350, "from_unit": "fahrenheit", "to_unit": "celsius"})],
    ),
    Case("Convert 12 inches", ASK),
    Case(
        'Translate "good morning" into German',
        [("translate_text", {"text": "good morning", "target_language": "German"})],
    ),
    Case(
        "Please translate 'Où est la gare?' from French to English",
        [("translate_text", {"text": "Où est la gare?", "target_language": "English", "source_language": "French"})],
    ),
    Case(
        "How do you say 'thank you very much' in Japanese?",
        [("translate_text", {"text": "thank you very much", "target_language": "Japanese"})],
    ),
    Case(
        "Remind me to water the plants tomorrow",
        [("create_reminder", {"text": "water the plants", "date": "tomorrow"})],
    ),
    Case(
        "Remind me on 2025-04-02 to call the dentist at 14:30",
        [("create_reminder", {"text": "call the dentist", "date": "2025-04-02", "time": "14:30"})],
    ),
    Case(
        "Set a reminder to pay the rent on March 31, 2025",
        [("create_reminder", {"text": "pay the rent", "date": "2025-03-31"})],
    ),
    Case("Remind me to buy milk", ASK),
    Case("What support tickets are open?", [LOOK_UP_TICKETS]),
    Case("Close ticket 34", [("close_ticket", {"ticket_id": "34"})]),
    Case("Close the ticket about the printer", [LOOK_UP_TICKETS, ("close_ticket", {"ticket_id": "31"})]),
    Case("You can close Priya's keyboard ticket now", [LOOK_UP_TICKETS, ("close_ticket", {"ticket_id": "38"})]),
    Case("Convert 100 USD to EUR", [("convert_currency", {"amount": 100, "source": "USD", "target": "EUR"})]),
    Case("How much is 2,500 euros in yen?", [("convert_currency", {"amount": 2500, "source": "EUR", "target": "JPY"})]),
    Case(
        "I have fifty dollars, what is that in Swiss francs?",
        [("convert_currency", {"amount": 50, "source": "USD", "target": "CHF"})],
    ),
    Case("Change $20 into pounds", [("convert_currency", {"amount": 20, "source": "USD", "target": "GBP"})]),
    Case("Find a recipe with chickpeas and spinach", [("find_recipes", {"ingredients": ["chickpeas", "spinach"]})]),
    Case(
        "I need a vegetarian recipe with eggplant that takes under 30 minutes",
        [("find_recipes", {"ingredients": ["eggplant"], "vegetarian": True, "max_minutes": 30})],
    ),
    Case(
        "What can I cook with rice, tomatoes and basil?",
        [("find_recipes", {"ingredients": ["rice", "tomatoes", "basil"]})],
    ),
    Case("Who won the football match last night?", REFUSE),
    Case("What is the capital of Australia?", REFUSE),
    Case("Thanks, that was very helpful.", REFUSE),
]
