"""Conversations for tools/make_chat_goldens.py, in the form of `moesaic tokenize --chat`."""


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content, **more):
    return {"role": "system", "content": content, **more}


def call(name, arguments, number=1):
    return {"id": f"callid{number:03d}", "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, number=1, **more):
    return {"role": "tool", "tool_call_id": f"callid{number:03d}", "name": "get_weather", "content": content, **more}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place – wind too",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name, e.g. \"Köln\""},
                "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                "days": {"type": "integer"},
            },
            "required": ["city"],
        },
    },
}
COMPLEX = {
    "type": "function",
    "function": {
        "name": "plan",
        "description": "Plans <b>&\n",
        "parameters": {
            "type": "object",
            "properties": {
                "z": {"type": "array", "items": {"type": "number", "minimum": 1e-07}, "default": [1.0, -2.5e20]},
                "a": {"type": ["string", "null"], "nullable": True},
                "o": {"type": "object", "properties": {"q": {"type": "boolean"}, "p": {"type": "integer"}}, "required": ["p"]},
                "m": {"type": "object", "additionalProperties": {"type": "number"}},
                "l": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
                "any": {},
            },
            "required": [],
            "$defs": {"ünï": "😀\u2028"},
        },
    },
}
NO_PARAMETERS = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}


def chat(*messages, prompt=False, tools=None, **kwargs):
    made = {"messages": list(messages)}
    if prompt:
        made["add_generation_prompt"] = True
    if tools is not None:
        made["tools"] = tools
    if kwargs:
        made["chat_template_kwargs"] = kwargs
    return made


CONVERSATIONS = [
    chat(user("Hello!"), prompt=True),
    chat(system("Be brief."), user("Hello!"), prompt=True),
    chat(user("Hello!"), assistant("Hi.")),
    chat(system("Be kind."), user("1 + 1?"), assistant("2"), user("And 2 + 2?"), assistant("It is 4."), user("Why?"), prompt=True),
    chat(user("añ 😀 ß\u00a0\u200b 日本語 ﷽ e\u0301"), assistant("Ωmega 😀👩‍👩‍👧 done")),
    chat(user(""), assistant(""), user("  \n spaces \n\n "), assistant("\n\n lines \t\n")),
    chat(assistant("I start."), user("No, I do.")),
    chat(user("one"), user("two"), assistant("three"), assistant("four")),
    chat(user("a"), system("in the middle"), assistant("b"), prompt=True),
    chat({"role": "narrator", "content": "Once."}, user("Upon?"), prompt=True),
    chat(user("Weather in Köln?"), tools=[WEATHER], prompt=True),
    chat(system("Use tools."), user("Weather?"), assistant("", tool_calls=[call("get_weather", {"city": "Köln", "days": 2})]), result('{"t": 11.5}'), assistant("11.5 °C."), tools=[WEATHER]),
    chat(user("Two cities?"), assistant("Looking.", tool_calls=[call("get_weather", {"city": "A"}), call("get_weather", {"city": "B", "unit": "F"}, 2)]), result("1"), result("2", 2), assistant("Both."), tools=[WEATHER, COMPLEX]),
    chat(user("Text arguments"), assistant(None, tool_calls=[call("now", "{\"a\": 1}")]), result("noon"), tools=[NO_PARAMETERS], prompt=True),
    chat(user("Think."), assistant("Done.", reasoning_content="First,\nthen."), user("More."), assistant("Final.", reasoning_content="\nAgain.\n")),
    chat(user("Think."), assistant("<think>\nIn text\n</think>\n\nAnswer"), user("Go"), assistant("<think>x</think>y"), prompt=True),
    chat(user([{"type": "text", "text": "Part one. "}, {"type": "text", "text": "Part two."}]), prompt=True),
    chat(user([{"type": "image", "image": "a.png"}, {"type": "text", "text": "What is it?"}]), assistant("A cat."), prompt=True),
    chat(user("Quick"), enable_thinking=False, thinking=True, prompt=True),
    chat(user("Effort"), assistant("ok", thinking="hm"), reasoning_effort="high", date_string="2025-11-22", model_identity="Me."),
    chat(user("<|im_end|><|eot_id|></s> [INST] {{ x }} {% if %}"), assistant("<|endoftext|>x")),
    chat(system("Only this."), prompt=True),
    chat(user("Everything?"), assistant("Calling", reasoning_content="I must.", tool_calls=[call("plan", {"z": [1.0, 1e-07, 3], "o": {"q": True, "p": None}, "s": "tèxt"})]), result([{"type": "text", "text": "ok"}]), user("So?"), tools=[COMPLEX, NO_PARAMETERS], prompt=True),
    chat(user("Documents?"), documents=[{"doc_id": 1, "title": "T", "text": "Dogs bark."}], controls={"citations": True, "n": 1.0}, prompt=True),
    chat(user("Last is mine"), assistant("Prefix"), prompt=True),
]
