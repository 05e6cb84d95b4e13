#include "src/jinja/template.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace moesaic::jinja {
namespace {

std::string rendered(const std::string& source, const Limits& limits = {}) {
  return Template::parse(source, "t.jinja").render(Dict(), limits).text;
}

/// The message of what parsing and rendering throw.
std::string refusal(const std::string& source, const Limits& limits = {}) {
  try {
    return "gives " + rendered(source, limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    return error.what();
  }
}

TEST(Template, names_file_and_line_of_what_is_wrong) {
  EXPECT_EQ(refusal("a\nb\n{{ 1 + }}"),
            "t.jinja line 3: expected an expression, found end of print statement");
  EXPECT_EQ(refusal("\n\n{% nope %}"), "t.jinja line 3: unknown tag 'nope'");
  EXPECT_EQ(refusal("\n{{ 1|nope }}"), "t.jinja line 2: there is no filter named 'nope'");
  EXPECT_EQ(refusal("{% include 'x' %}"), "t.jinja line 1: unknown tag 'include'");
  EXPECT_EQ(refusal("\n{% for x in [1] recursive %}\n{% endfor %}"),
            "t.jinja line 2: recursive loops are not supported");
  EXPECT_EQ(refusal("{% if true %}\n\n{{ zz.y }}{% endif %}"), "t.jinja line 3: 'zz' is undefined");
  EXPECT_EQ(refusal("{{ 1 }}\n{{ raise_exception('Roles must alternate') }}"),
            "t.jinja line 2: Roles must alternate");
  EXPECT_EQ(refusal("{{ [1].append(2) }}"),
            "t.jinja line 1: 'append' of a list changes it, which templates may not do");
}

TEST(Template, ends_what_never_would) {
  EXPECT_NE(refusal("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("levels deep"),
            std::string::npos);
  EXPECT_NE(
      refusal("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
              {.work = 1 << 20})
          .find("steps"),
      std::string::npos);
  EXPECT_NE(refusal("{% for a in range(99) %}{% set made = [1] | batch(99999, 0) %}{% endfor %}",
                    {.work = 1 << 20})
                .find("steps"),
            std::string::npos);
  EXPECT_NE(refusal("{% for a in range(9) %}{% set made = ([[1] * 1000] * 99) | sum(start=[]) %}"
                    "{% endfor %}",
                    {.work = 30 << 20})
                .find("steps"),
            std::string::npos);
  EXPECT_NE(refusal("{% set t = 'a' * 9000 %}{% for a in range(9000) %}{% set n = t | length %}"
                    "{% endfor %}",
                    {.work = 3 << 20})
                .find("steps"),
            std::string::npos)
      << "a filter works on all that it is given";
  EXPECT_NE(
      refusal("{% set t = 'a' * 9000 %}{% for a in range(900) %}{% set n %}{{ t }}{% endset %}"
              "{% endfor %}",
              {.work = 5 << 20})
          .find("steps"),
      std::string::npos)
      << "what is written counts also where it is dropped";
  EXPECT_NE(refusal("{% set ns = namespace(s='ab') %}{% for a in range(99) %}"
                    "{% set ns.s = ns.s + ns.s %}{% endfor %}")
                .find("text"),
            std::string::npos);
  EXPECT_NE(refusal("{% for a in range(99) %}0123456789{% endfor %}", {.output = 100})
                .find("renders more than 100 bytes"),
            std::string::npos);
  EXPECT_NE(refusal("{{ 'x' * 10 ** 12 }}").find("too long"), std::string::npos);
  EXPECT_NE(refusal("{{ '%999999999d' % 1 }}").find("width"), std::string::npos);
}

TEST(Template, refuses_values_that_are_too_deep_or_too_large) {
  EXPECT_NE(refusal("{% set ns = namespace(l=[]) %}{% for a in range(9999) %}"
                    "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}")
                .find("nested deeper than 250"),
            std::string::npos);
  EXPECT_NE(refusal("{% set ns = namespace(l=[1]) %}{% for a in range(99) %}"
                    "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == ns.l }}")
                .find("more than"),
            std::string::npos);
  const std::string deep = std::string(5000, '(') + "1" + std::string(5000, ')');
  EXPECT_NE(refusal("{{ " + deep + " }}").find("nested deeper"), std::string::npos);
  std::string negations;
  for (int i = 0; i < 5000; ++i) negations += "not ";
  EXPECT_NE(refusal("{{ " + negations + "1 }}").find("nested deeper"), std::string::npos);
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if 1 %}";
  EXPECT_NE(refusal(blocks).find("nested deeper"), std::string::npos);
  std::string sum = "1";
  for (int i = 0; i < 100000; ++i) sum += "+1";
  EXPECT_NE(refusal("{{ " + sum + " }}").find("levels deep"), std::string::npos);
}

TEST(Template, members_that_are_set_again_count_once) {
  EXPECT_EQ(rendered("{% set ns = namespace(a=[]) %}{% set long = range(1000) %}"
                     "{% for i in range(5000) %}{% set ns.a = long %}{% endfor %}"
                     "{{ ns.a | length }}"),
            "1000");
}

TEST(Template, integers_that_do_not_fit_are_refused) {
  for (const std::string text :
       {"9223372036854775807 + 1", "-9223372036854775807 - 2", "9223372036854775807 * 2",
        "10 ** 19", "9223372036854775808", "(-9223372036854775807 - 1) // -1"}) {
    EXPECT_NE(refusal("{{ " + text + " }}").find("64 bits"), std::string::npos) << text;
  }
  EXPECT_EQ(rendered("{{ -9223372036854775807 - 1 }} {{ 9223372036854775807 }}"),
            "-9223372036854775808 9223372036854775807");
  EXPECT_EQ(rendered("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
}

TEST(Template, macros_and_namespaces_that_hold_each_other_are_freed) {
  // LeakSanitizer would tell.
  EXPECT_EQ(rendered("{% set ns = namespace() %}{% macro f() %}{{ ns.g is callable }}{% endmacro %}"
                     "{% set ns.g = f %}{% set ns.self = [ns, f] %}{{ ns.g() }}"),
            "True");
  EXPECT_NE(refusal("{% set ns = namespace() %}{% for a in [1] %}{% macro f() %}{% endmacro %}"
                    "{% set ns.f = f %}{% endfor %}{{ ns.f() }}")
                .find("outside of the block"),
            std::string::npos);
  EXPECT_NE(
      refusal("{% set ns = namespace() %}{% for a in [1] %}{% set ns.c = loop.changed %}"
              "{% set ns.l = loop %}{% endfor %}{{ ns.l.index }}{% set ns.l = 1 %}{{ ns.c(1) }}")
          .find("outside of its loop"),
      std::string::npos);
}

TEST(Template, macros_are_given_what_no_parameter_takes_if_they_read_it) {
  const auto called = [](const std::string& macro, const std::string& call) {
    return rendered("{% macro f" + macro + "{% endmacro %}" + call);
  };
  EXPECT_EQ(called("(a) %}{{ a }}|{{ varargs }}|{{ kwargs }}", "{{ f(1, 2, 3, x=4) }}{{ f() }}"),
            "1|(2, 3)|{'x': 4}|()|{}");
  EXPECT_EQ(called("(a) %}{% for v in varargs %}{{ v }}-{% endfor %}", "{{ f(*[1, 2, 3]) }}"),
            "2-3-");
  EXPECT_EQ(called("(a, b=varargs) %}{{ varargs }}{{ b }}", "{{ f(1) }}"), "()()");
  EXPECT_EQ(called("(a) %}{{ kwargs }}", "{{ f(1, a=3) }}"), "{'a': 3}");
  EXPECT_EQ(called("() %}{{ varargs }}{% set varargs = 3 %}{{ varargs }}", "{{ f(1) }}"), "(1,)3");
  EXPECT_EQ(called("(varargs, kwargs) %}{{ varargs }}{{ kwargs }}", "{{ f(1, 2) }}"), "12");
  EXPECT_EQ(called("() %}{{ varargs }}", "{% set varargs = 1 %}{{ f() }}"), "()");
  EXPECT_EQ(called("() %}{% macro g() %}{{ varargs }}{% endmacro %}{{ g(9) }}", "{{ f(1) }}"),
            "(9,)");
  EXPECT_EQ(called("() %}{{ caller(1, 2, b=3) }}",
                   "{% call(a) f() %}{{ a }}{{ varargs }}{{ kwargs }}{% endcall %}"),
            "1(2,){'b': 3}");
}

TEST(Template, macros_refuse_what_no_parameter_takes_if_they_do_not_read_it) {
  const auto refused = [](const std::string& macro, const std::string& call) {
    return refusal("{% macro f" + macro + "{% endmacro %}" + call);
  };
  const std::string too_many = "t.jinja line 1: macro 'f' takes not more than 1 arguments";
  EXPECT_EQ(refused("(a) %}{{ kwargs }}", "{{ f(1, 2) }}"), too_many);
  EXPECT_EQ(refused("(a) %}{% set varargs = 3 %}{{ varargs }}", "{{ f(1, 2) }}"), too_many);
  EXPECT_EQ(refused("(varargs) %}{{ varargs }}", "{{ f(1, 2) }}"), too_many);
  EXPECT_EQ(refused("(a) %}{{ a.varargs }}", "{{ f(1, 2) }}"), too_many);
  EXPECT_EQ(refused("(a) %}{{ varargs }}", "{{ f(1, x=2) }}"),
            "t.jinja line 1: macro 'f' takes no keyword argument 'x'");
  EXPECT_EQ(refused("(a) %}{{ a }}", "{{ f(1, a=2) }}"),
            "t.jinja line 1: macro 'f' takes no keyword argument 'a'");
  EXPECT_EQ(refused("() %}no", "{% call f() %}x{% endcall %}"),
            "t.jinja line 1: macro 'f' takes no keyword argument 'caller'");
}

TEST(Template, a_caller_is_that_of_the_macro_itself) {
  const std::string g = "{% macro g() %}[{{ caller is defined and caller() }}]{% endmacro %}";
  EXPECT_EQ(rendered(g + "{% macro f() %}{{ caller() }}{{ g() }}{% endmacro %}"
                         "{% call f() %}x{% endcall %}"),
            "x[False]");
  EXPECT_EQ(rendered(g + "{% macro f() %}{% call g() %}{{ caller is defined }}{% endcall %}"
                         "{{ caller() }}{% endmacro %}{% call f() %}x{% endcall %}"),
            "[False]x");
  EXPECT_EQ(rendered("{% set caller = 1 %}{% macro f() %}{{ caller }}{% endmacro %}{{ f() }}"), "");
  EXPECT_EQ(rendered("{% macro f(caller=none) %}{{ caller and caller() }}{% endmacro %}{{ f() }}"
                     "{% call f() %}x{% endcall %}"),
            "Nonex");
  EXPECT_EQ(refusal("{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}"),
            "t.jinja line 1: there is no caller: this is no call block");
}

TEST(Template, a_namespace_prints_its_members) {
  EXPECT_EQ(rendered("{{ namespace() }}{{ [namespace(a=1, b=namespace(c='x'))] }}"),
            "<Namespace {}>[<Namespace {'a': 1, 'b': <Namespace {'c': 'x'}>}>]");
  EXPECT_EQ(rendered("{% set n = namespace(a=1) %}{% set n.l = [n, 2] %}{{ n }}"),
            "<Namespace {'a': 1, 'l': [<Namespace {...}>, 2]}>");
  EXPECT_NE(refusal("{% set n = namespace() %}{% for a in range(99) %}"
                    "{% set n.inner = namespace(inner=n.inner) %}{% endfor %}{{ n }}")
                .find("levels deep"),
            std::string::npos);
}

TEST(Template, strftime_now_gives_the_time) {
  const std::string year = rendered("{{ strftime_now('%Y') }}");
  EXPECT_EQ(year.size(), 4U);
  EXPECT_EQ(year.substr(0, 2), "20");
  EXPECT_EQ(rendered("{{ strftime_now('') }}{{ strftime_now('%%') }}"), "%");
}

TEST(Template, json_keeps_its_order_and_its_numbers) {
  const Json json =
      Json::parse(R"({"z": 1, "a": [1.0, 1e-7, -0.0, null], "m": {"y": 1, "b": 2}})", "j");
  Dict variables;
  variables.set(Value("v"), value_of(json));
  EXPECT_EQ(Template::parse("{{ v | tojson }} {{ v.m }}", "t").render(variables).text,
            R"({"z": 1, "a": [1.0, 1e-07, -0.0, null], "m": {"y": 1, "b": 2}} {'y': 1, 'b': 2})");
}

TEST(Template, json_integers_that_are_too_long_do_not_become_floats) {
  for (const char* number :
       {"9223372036854775808", "-9223372036854775809", "100000000000000000000"}) {
    const Json json = Json::parse(std::string("{\"v\": [") + number + "]}", "line 1");
    try {
      (void)value_of(json);
      ADD_FAILURE() << number;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("line 1: v[0]: expected an integer"))
          << error.what();
    }
  }
  const Json json = Json::parse("[-9223372036854775808, -1e20]", "line 1");
  Dict variables;
  variables.set(Value("v"), value_of(json));
  EXPECT_EQ(Template::parse("{{ v }}", "t").render(variables).text,
            "[-9223372036854775808, -1e+20]");
}

}  // namespace
}  // namespace moesaic::jinja
