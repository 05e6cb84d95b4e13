"""Small templates, each about one thing, for tools/make_chat_goldens.py: the texts, or that they
are refused, are recorded from Jinja as transformers sets it up."""

VARIABLES = {
    "n": 7,
    "f": 2.5,
    "s": "Hello, World",
    "u": "añ😀 ß\u00a0x",
    "e": "",
    "l": [3, 1, 2],
    "w": ["b", "A", "c"],
    "d": {"b": 1, "a": [True, None], "items": "own", "é": "\u2028<&>"},
    "m": [
        {"role": "system", "content": "Be brief.", "n": 2},
        {"role": "user", "content": "Hi", "n": 1},
        {"role": "assistant", "content": None, "n": 3},
    ],
    "t": True,
    "none_value": None,
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4
7 / 2
7 // 2
-7 // 2
7 % 3
-7 % 3
7.5 % -2
7.5 // 2
-7.5 // 2
2 ** 10
2 ** -1
-2 ** 2
2 ** 3 ** 2
10 ** 18
1e3
1_000 + 0x1F + 0o17 + 0b101
1.5e-7
0.1 + 0.2
1e16
1e15
123456789012345678.0
1e22
1e-4
1e-5
5e-324
100.0
-0.0
1 / 3
3.0
f * 4
n / 7
true
True + 1
none
None
[1, 'a', 2.0, None, True, [], {}, (1,), ()]
{'a': 1, "b": [1, 2], 3: {'x': 'y'}}
['it\'s', "q\"", 'both \' and "', 'tab\t nl\n cr\r bs\\ nul\x00 del\x7f', 'é\xa0\u200b😀\u2028\ufeff']
'a' 'b' "c"
'\u00e9\x41\101\U0001F600\q\N' if false else 'x'
'\u00e9\x41\101\U0001F600\q\'\"\a\b\f\v'
"line\
two"
(1, 2)
1, 2
()
n is defined and x is not defined
x
x is defined
x.y is defined
x.y
x['y']
d.zz
d.zz.y
d.a
d['a']
d.items
d['items']
d.items() | list
d.keys()
d.values()
d.items()
d.get('a')
d.get('zz')
d.get('zz', 4)
d['é']
d.copy()
d.pop('a')
l.append(4)
l.append
d.update({'x': 1})
l[0]
l[-1]
l[5]
l[1:]
l[::-1]
l[-2:]
l[:1]
l[0:3:2]
l[5:1:-1]
l['0']
l.0
s[0]
s[-1]
s[100]
s[7:]
s[:-1]
s[::-1]
s[::2]
u[1]
u[2:3]
u[::-1]
s.zz
(1, 2)[0]
range(5)
range(2, 8, 3)
range(5) | list
range(3, 0, -1) | list
range(2)[1]
range(100001)
1 < 2 < 3
1 < 3 < 2
1 == 1.0 == true
'a' < 'b'
[1, 2] < [1, 3]
(1, 2) == (1, 2)
[1] == (1,)
{'a': 1} == {'a': 1.0}
1 < 'a'
none < 1
x < 1
x == y
'ell' in s
'z' not in s
2 in l
'a' in d
'zz' in d
1 in s
'a' in x
'a' in none
not 1 == 2
not n
n and s
e or 'dflt'
e and 'x'
n or x.y
'yes' if n > 5 else 'no'
'yes' if n > 50
('yes' if n > 50) is undefined
1 if 0 else 2 if 0 else 3
'a' ~ 1 ~ none ~ true ~ 1.0 ~ x ~ [1]
'a' + 1
1 + 'a'
'a' + x
x + 'a'
s + '!'
'ab' * 3
3 * 'ab'
'ab' * -1
[1, 2] * 2
[1] + [2]
[1] + (2,)
(1,) + (2,)
-'a'
+'a'
-x
+n
+true
-t
1 / 0
1 // 0
1 % 0
1.0 / 0
'%s is %d, %5.2f|%-5s|%05d|%x|%%|%r' % ('a', 3, 2.345, 'b', 42, 255, 'q')
'%s' % 'one'
'%s' % [1, 2]
'%s %s' % 'one'
'%d' % 'one'
'%(a)s' % {'a': 5}
'%+d %e %g %g' % (5, 12345.678, 0.0001, 1e20)
'%c|%3d|%.3s' % ('x', 7, 'abcdef')
'{} {}'.format('a', 2)
'{1} {0} {k} {{}}'.format('a', 2, k=3)
'{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}'.format('a', 'b', 'c', 42, 3.14159, 1234567, 255)
'{0[role]} {1.role}'.format({'role': 'r'}, {'role': 'r'})
'{!r}'.format('a')
'{:*^9}'.format('mid')
'{:+d} {:e} {:%}'.format(5, 1234.5, 0.25)
'{'.format()
s.upper()
s.lower()
s.title()
s.swapcase()
'hELLO wORLD'.capitalize()
u.upper()
'they\'re bill\'s'.title()
s.startswith('Hell')
s.endswith(('x', 'World'))
s.startswith('lo', 3)
'  x  '.strip() ~ '|'
'  x  '.lstrip() ~ '|'
'  x  '.rstrip() ~ '|'
'xxaxx'.strip('x')
'xyaxy'.lstrip('yx')
'\u3000a\x1c'.strip() ~ '|'
'a,b,,c'.split(',')
'a,b,,c'.split(',', 1)
'a,b,,c'.rsplit(',', 1)
'  a  b c '.split()
'  a  b c '.split(none, 1)
'  a  b c '.rsplit(none, 1)
'abc'.split('')
'a\nb\r\nc\rd\n'.splitlines()
'a\nb\r\n'.splitlines(true)
'aXbXc'.replace('X', '-')
'aXbXc'.replace('X', '-', 1)
'abc'.replace('', '-')
'abc'.replace('', '-', 2)
''.replace('', '-')
'hello'.find('l')
'hello'.rfind('l')
'hello'.find('z')
'hello'.index('z')
'hello'.find('l', 3)
'hello'.count('l')
'hello'.count('')
','.join(w)
','.join(l)
'a'.join('xyz')
'prefix-x'.removeprefix('prefix-')
'x.py'.removesuffix('.py')
'k=v=w'.partition('=')
'k=v=w'.rpartition('=')
'kv'.partition('=')
'kv'.rpartition('=')
'5'.zfill(3) ~ '-5'.zfill(4)
'a'.ljust(3) ~ '|' ~ 'a'.rjust(3) ~ '|' ~ 'a'.center(4, '*') ~ '|' ~ 'ab'.center(5, '*')
'12'.isdigit() ~ '1a'.isdigit() ~ ''.isdigit() ~ '²'.isdigit() ~ '½'.isdigit()
'½'.isnumeric() ~ '²'.isdecimal() ~ 'é'.isalpha() ~ 'é1'.isalnum() ~ ' \t'.isspace()
'AB1'.isupper() ~ 'ab1'.islower() ~ '1'.isupper() ~ 'Ab'.islower()
'ß'.upper() ~ 'ǆ'.title() ~ 'İ'.lower()
l.index(1)
l.index(9)
l.count(1)
(2.0).is_integer()
s.zz()
s()
d()
s|upper
s|lower|title
'hello wORLD-foo (bar)'|title
'hELLO'|capitalize
'  a '|trim ~ '|'
'xxaxx'|trim('x')
'aXbX'|replace('X', '-')
'aXbX'|replace('X', '-', 1)
'a\nb\n\nc'|indent
'a\nb\n\nc'|indent(2, true)
'a\nb\n\nc'|indent('> ', blank=true)
'a\nb\n'|indent(2) ~ '|'
'mid'|center(9) ~ '|'
'%s=%s'|format('a', 1)
'%(x)s'|format(x=1)
'<a href="x">\'&'|escape
'<b>'|safe
'<b>'|e
12|string ~ ''
x|string ~ '|'
'the quick brown fox jumps'|truncate(12)
'the quick brown fox jumps'|truncate(12, true)
'the quick brown fox'|truncate(16)
'a b, c'|wordcount
x|default
x|default('dflt')
x|d(1)
none|default('dflt')
none|default('dflt', true)
e|default('dflt', boolean=true)
-5|abs
-5.5|abs
'x'|abs
'42'|int
'4.7'|int
' 42 '|int
'x'|int
'x'|int(-1)
'ff'|int(base=16)
'0xff'|int(0, 16)
4.9|int
-4.9|int
none|int
'1_000'|int
'2.5'|float
'inf'|float
'1e5'|float
'x'|float
3|float
2.5|round
3.5|round
2.675|round(2)
2.675|round(2, 'ceil')
2.675|round(2, 'floor')
1234|round(-2)
7|round
s|length
u|length
d|length
l|count
5|length
none|length
x|length
d|tojson
u|tojson
l|tojson(indent=2)
d|tojson(indent=4)
d|tojson(ensure_ascii=true)
u|tojson(ensure_ascii=true)
d|tojson(sort_keys=true)
d|tojson(separators=(',', ':'))
d|tojson(indent='\t')
[]|tojson(indent=2) ~ {}|tojson(indent=2)
[[], {}, [1, {'a': []}]]|tojson(indent=2)
'quote " back \\ nl \n tab \t bell \x07 del \x7f / </script>'|tojson
[1.0, 1e-07, 1e22, true, none]|tojson
(1, 2)|tojson
{1: 2, true: 3, none: 4, 1.5: 5}|tojson
x|tojson
[x]|tojson
range(3)|tojson
d.items()|tojson
d.items()|list|tojson
d|attr('a')
d|attr('get')('b')
s|attr('upper')()
d|items|list
x|items|list
l|sort
w|sort
w|sort(case_sensitive=true)
l|sort(reverse=true)
m|sort(attribute='n')|map(attribute='role')|list
[1, 'a']|sort
d|dictsort
{'b': 1, 'A': 2}|dictsort
{'b': 1, 'A': 2}|dictsort(true)
{'b': 1, 'a': 2}|dictsort(by='value', reverse=true)
l|max
l|min
w|max
[]|max
m|max(attribute='n')
[3, 1, 3, '3']|unique|list
w|map('lower')|unique|join
l|sum
m|sum(attribute='n')
m|sum('n', 10)
l|list
s|list|length
d|list
'ab'|list
x|list
5|list
l|first
[]|first
''|first
s|first
d|first
l|last
s|last
s|reverse
l|reverse|list
l|reverse
l|join
l|join('-')
m|join(', ', attribute='role')
d|join(',')
x|join(',')
'abc'|join('.')
[1, 2, 3, 4, 5]|batch(2)|list
[1, 2, 3]|batch(2, 'x')|list
m|map(attribute='role')|list
m|map(attribute='zz', default='none')|list
m|map(attribute='zz')|list
w|map('upper')|join('')
w|map('replace', 'A', 'B')|list
[[1, 2]]|map(attribute=0)|list
[{'a': {'b': 5}}]|map(attribute='a.b')|list
l|select('odd')|list
l|select('gt', 1)|list
l|reject('odd')|list
[0, 1, '', 'a']|select|list
m|selectattr('role', 'equalto', 'user')|list
m|selectattr('role', '==', 'user')|map(attribute='content')|first
m|rejectattr('role', 'eq', 'system')|list|length
m|selectattr('content')|list|length
m|selectattr('role', 'in', ['user', 'system'])|map(attribute='role')|join(' ')
'true' if m|selectattr('role', 'eq', 'nobody') else 'false'
'true' if m|selectattr('role', 'eq', 'nobody')|list else 'false'
m|selectattr('zz', 'defined')|list
n is odd
n is even
n is divisibleby 7
n is divisibleby(3)
n is number and f is number and t is number
n is integer and t is not integer and f is float
t is boolean and t is true and t is not false
s is string and n is not string
d is mapping and l is not mapping
l is sequence and s is sequence and d is sequence and n is not sequence
l is iterable and s is iterable and n is not iterable
range is callable and n is not callable
none_value is none and n is not none
n is eq 7 and n is ne(8) and n is gt 6 and n is ge 7 and n is lt 8 and n is le 7
n is in [6, 7]
n is not in [6, 7]
s is lower
'abc' is lower and 'ABC' is upper
n is sameas 7
true is sameas 1
'upper' is filter and 'nope' is not filter
'odd' is test
x is undefined
n is nope
n|nope
n is string is string
namespace(a=1).a
namespace({'a': 1}, b=2).b
namespace(a=1).c is undefined
dict(a=1, b=2)
dict([('a', 1)])
raise_exception('stop')
raise_exception(5)
d | tojson | length > 5 and n
- 5 | abs
-5.5 | round
1 if n is defined else 2
[1, 2, 3,]
{'a': 1,}
(1,)
not (n is defined)
n is not defined or n == 7
l == [3, 1, 2] != []
'a' ~ 'b' * 2 + 'c'
2 + 3 ~ 'x'
1 ~ 2 == '12'
'x' in 'xyz' and 'q' not in 'xyz'
{'a': 1}['a'] + {'b': 2}.b
[[1, 2], [3]][0][1]
m[-1].role
m[0]['content'].split(' ')[1].upper()
m[1:][0].role
m[2].content is none
m[2].content or 'empty'
m[0].content | length // 2
(m | length) // 2
n.__class__
s.__len__()
"a" if true
dict(**{'a': 1})
range(*[1, 3])|list
n if n else (x.y.z)
""".strip("\n").replace("\"line\\\ntwo\"", "\"line\\n\" \"two\"").split("\n")

TEMPLATES = [
    "plain text\n",
    "plain text\n\n",
    "a\r\nb\rc\n",
    "{# comment #}x",
    "  {# comment #}\nx",
    "  {%- if t -%}  y  {%- endif -%}  z",
    "a\n  {% if t %}\n  y\n  {% endif %}\nz",
    "a\n  {%+ if t %}\n  y\n  {%+ endif %}\nz",
    "a {% if t +%}\n y {% endif +%}\n z",
    "a  {{- n -}}  b",
    "a\n{{ n }}\nb",
    "a\n  {{ n }}  \nb",
    "a\n  {# c #}  \nb",
    "a\n  {#- c -#}  \nb",
    "{% raw %}{{ n }}{% if %}{% endraw %}x",
    "a\n  {% raw %}\n {{ n }}\n  {% endraw %}\nx",
    "a {%- raw -%}  {{ n }}  {%- endraw -%} x",
    "{{ '{{' }} {{ '}}' }} {{ {'a': {'b': 1}} }}",
    "{{ n }}{{ s }}\n",
    "{% set a = 1 %}{{ a }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set (a, b) = [1, 2] %}{{ a }}{{ b }}",
    "{% set a, b = 1 %}{{ a }}",
    "{% set a, b = [1, 2, 3] %}{{ a }}",
    "{% set a %}x{{ n }}y{% endset %}{{ a }}|{{ a is string }}",
    "{% set a | upper | replace('X', 'Z') %}x{{ n }}y{% endset %}{{ a }}",
    "{% set ns = namespace(a=0) %}{% for x in l %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}",
    "{% set d.a = 1 %}",
    "{% set q.a = 1 %}",
    "{% set a = 0 %}{% for x in l %}{% set a = a + x %}{{ a }}{% endfor %}{{ a }}",
    "{% if t %}{% set a = 1 %}{% endif %}{{ a }}",
    "{% if n > 10 %}a{% elif n > 5 %}b{% else %}c{% endif %}",
    "{% if x %}a{% else %}b{% endif %}",
    "{% for x in l %}{{ loop.index }}/{{ loop.length }}:{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for x in l %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }} {% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in [] %}a{% else %}none{% endfor %}",
    "{% for x in l %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}{{ x }} {% endfor %}",
    "{% for x in l if x > 10 %}a{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }};{% endfor %}",
    "{% for c in 'añ😀' %}[{{ c }}]{% endfor %}",
    "{% for x in n %}{% endfor %}",
    "{% for x in y %}a{% else %}none{% endfor %}",
    "{% for x in none %}a{% endfor %}",
    "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% for y in w %}{{ loop.index }}{{ x }}{{ y }}{% if y == 'A' %}{% break %}{% endif %}{% endfor %};{% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in l %}{% endfor %}",
    "{% for m1 in m %}{% set c = m1.content %}{{ c }}{% endfor %}{{ c }}",
    "{% for x in l %}{% if loop.first %}{% set a = x %}{% endif %}{{ a }}{% endfor %}",
    "{% set a = 'out' %}{% for x in l %}{{ a }}{% set a = x %}{{ a }} {% endfor %}{{ a }}",
    "{{ loop }}",
    "{% macro f(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(b=5, a=4) }}{{ f() }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(z=2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1)|length }}{{ f(1) is string }}{{ f('x') + 'y' }}",
    "{% macro fact(k) %}{% if k > 1 %}{{ k }}*{{ fact(k - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}",
    "{% set a = 1 %}{% macro f() %}{{ a }}{{ b }}{% endmacro %}{% set b = 2 %}{{ f() }}",
    "{% macro f() %}{% set a = 5 %}{{ a }}{% endmacro %}{{ f() }}{{ a }}",
    "{% macro f() %}{{ n }}{% endmacro %}{% for x in l %}{{ f() }}{% endfor %}",
    "{% macro tree(x) %}{% if x is mapping %}{% for k, v in x.items() %}{{ k }}:{{ tree(v) }};{% endfor %}{% elif x is iterable and x is not string %}{% for v in x %}{{ tree(v) }},{% endfor %}{% else %}{{ x }}{% endif %}{% endmacro %}{{ tree({'a': [1, {'b': 'c'}], 'd': 2}) }}",
    "{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}in{{ n }}{% endcall %}",
    "{% macro f() %}<{{ caller(5) }}>{% endmacro %}{% call(v) f() %}in{{ v }}{% endcall %}",
    "{% filter upper %}abc{{ s }}{% endfilter %}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a }}",
    "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% set gen = m|map(attribute='role') %}{{ gen|list }}{{ gen|list }}",
    "{% set gen = m|map(attribute='role') %}{{ gen|first }}{{ gen|list }}",
    "{% if m|map(attribute='role') %}always{% endif %}",
    "{% set it = l|reverse %}{% for x in it %}{{ x }}{{ loop.last }}{% endfor %}{% for x in it %}{{ x }}{% endfor %}",
    "{{ n }",
    "{{ n",
    "{% if n %}",
    "{% endif %}",
    "{% if n %}{% else %}{% else %}{% endif %}",
    "{% nope %}",
    "{% for x in %}{% endfor %}",
    "{{ 1 + }}",
    "{{ (1 }}",
    "{{ [1 }}",
    "{{ 'abc }}",
    "{{ a b }}",
    "{{ }}",
    "{# open",
    "{% raw %} open",
    "{{ 1 ! 2 }}",
    "{% set true = 1 %}",
    "{% set 1 = 1 %}",
    "{% break %}",
    "{% macro f(a=1, b) %}{% endmacro %}",
    "{% generation %}x{{ n }}{% endgeneration %}y",
    "{% for x in l %}a{% generation %}{{ x }}é{% set q = 1 %}{% endgeneration %}{{ q }}{% endfor %}",
    "{%- for msg in m %}\n  {%- if msg.role == 'user' %}\n{{ '<u>' + msg.content }}\n  {%- endif %}\n{%- endfor %}\nend\n",
    "{% for msg in m %}\n{% if msg.content is string %}\n  {{ msg.content | trim }}\n{% endif %}\n{% endfor %}\n",
    "{%- set ns = namespace(found=false, idx=-1) -%}\n{%- for msg in m[::-1] -%}\n{%- set index = (m|length - 1) - loop.index0 -%}\n{%- if msg.role == 'user' and not ns.found -%}\n{%- set ns.found = true -%}{%- set ns.idx = index -%}\n{%- endif -%}\n{%- endfor -%}\n{{ ns.idx }}{{ ns.found }}",
    "{{ namespace(a=1) is mapping }}{{ namespace(a=1).a }}",
    "{% set ns = namespace() %}{% set ns.l = [ns] %}{{ ns.l|length }}",
    "{% if true and (false or not none) and n in [7] and s is string %}y{% endif %}",
    "x{% if t %}\n\n  y{% endif %}\n\n",
    "{{ s\n   | upper\n}}",
    "{%\n if t\n%}y{%\nendif %}",
    "{{- '\\n' }}a{{ '\\n' -}}  b",
    "{%- if t %}  a{% endif -%}\n\n b",
]
