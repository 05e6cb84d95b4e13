#include "launch/bench/built_in_text.h"

namespace moesaic {

std::string_view built_in_text() noexcept {
  return R"(# The harbour

Before dawn the boats lay side by side along the quay, and nobody spoke. Ingrid checked the nets
by touch, knot after knot, as her mother had taught her. "You are late," said the old man without
turning round. "The tide is late," she answered, and he laughed so loudly that the gulls rose from
the roof of the fish market. By the time the sun stood over the breakwater they were eleven miles
out, the engine ticking evenly, the coffee already cold.

# Why leaves change colour

In summer a leaf makes more chlorophyll than it loses. As nights grow longer, a layer of cork forms
where the stalk meets the twig; sugar no longer flows out, the green pigment breaks down, and the
carotenoids that were there all along become visible. Reds are different: anthocyanins are made
anew from the trapped sugar, which is why bright days and cool nights above freezing give the best
autumns. Oaks keep brown leaves until spring, a habit that botanists call marcescence.

# Finding a number in a sorted list

Halve the range again and again. For n = 1,000,000 entries about log2(n) = 19.93, that is 20
comparisons, are enough.

```python
def find(values, wanted):
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < len(values) and values[low] == wanted else None


assert find([2, 3, 5, 7, 11, 13], 7) == 3
```

The same mistake has been made many times in C, where the sum of two large indices overflows:

```c
int middle = low + (high - low) / 2; /* not (low + high) / 2 */
for (size_t i = 0; i < n && a[i] != '\0'; ++i) count[(unsigned char)a[i]]++;
```

# From a meeting of the council

Item 4: the bridge in Mill Lane. The engineer reported that two of the five piers have been washed
out to a depth of 1.4 m and that lorries above 7.5 t should be sent round by the ring road. Repairs
would cost between 310,000 and 365,000 euros, of which the county pays 40 %. Mrs Okafor asked
whether the work could begin before 15 March 2027; the engineer doubted it, since trout spawn until
April. The motion was carried by 14 votes to 3 with two abstentions.

| Year | Crossings a day | Lorries | Height of the river (m) | Cost of upkeep |
|------|-----------------|---------|-------------------------|----------------|
| 1998 | 2,140           | 96      | 1.82                    | 12,500         |
| 2008 | 3,975           | 211     | 2.07                    | 18,340         |
| 2018 | 5,610           | 388     | 1.64                    | 41,025         |
| 2026 | 6,033           | 402     | 2.39                    | 77,900         |

# A short proof

There are infinitely many primes. Suppose that p1, p2, ..., pk were all of them, and let
N = p1 * p2 * ... * pk + 1. No pi divides N, because each leaves the remainder 1; yet N > 1 has a
prime divisor. This divisor is missing from the list, which contradicts what we supposed. Note that
N itself need not be prime: 2 * 3 * 5 * 7 * 11 * 13 + 1 = 30031 = 59 * 509.

# Lentil soup for four

Fry one onion, two carrots and a stick of celery in 3 tablespoons of olive oil until they are soft.
Add 250 g of brown lentils, a bay leaf, 1/2 teaspoon of cumin and 1.2 litres of stock; simmer for 35
minutes. Stir in the juice of half a lemon, salt, and plenty of black pepper. Don't skip the lemon!

# Two letters

Dear Dr. Haddad, thank you for the X-rays of 9 September. The fracture of the left radius has
healed without displacement; the patient reports no pain at rest and should return to full load
over six weeks. Kind regards, M. Lindqvist.

Hi Tom - got your message, sorry!! Was on the 18:42 from Leeds w/o signal :( Can we do Thursday
instead? I'll bring the tent + stove, you sort out maps & food. Forecast says rain (70%?) but hey,
when did that ever stop us... See https://example.org/routes?id=417&lang=en for the path.

# How empires kept accounts

Clay tablets from Uruk, some five thousand years old, list barley, sheep and the names of those who
owed them. The Inca used knotted cords, quipus, whose colours and positions encoded quantities in
tens. In Venice, Luca Pacioli described in 1494 what merchants had done for two centuries: each sum
is written twice, once as a debt and once as a credit, so that an error betrays itself. What all
these have in common is distrust. A ledger is a memory that does not depend on goodwill.

{"order": 58213, "items": [{"sku": "BX-220", "count": 12, "price": 3.95}, {"sku": "TR-7",
"count": 1, "price": 149.0}], "paid": true, "note": null, "shipped": "2026-02-28T07:15:00Z"}

# The violin maker's answer

Nobody knows, she said, why some old instruments carry to the last row of a hall and others do not.
The varnish, the winters of the little ice age, the salt in which the logs floated: each theory has
been measured, and each has failed in a blind test. What remains is thickness, a tenth of a
millimetre here or there, and an ear that tells when to stop.
)";
}

}  // namespace moesaic
