#!/usr/bin/env bash
# A study's report.html in headless Chromium: every plot is drawn, nothing is asked for, and the console stays empty. Skipped
# (77) without Chromium.
# usage: report_check.sh MOESAIC DATA
set -euo pipefail
moesaic=$1
data=$2
for program in chromium python3; do
  if ! command -v "$program" >/dev/null; then
    echo "skipped: no $program (a package of Debian)"
    exit 77
  fi
done
folder=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -u -m http.server 0 --bind 127.0.0.1 --directory "$folder" >"$folder/server" 2>&1 &
server=$!
for ((i = 0; i < 600; ++i)); do
  port=$(sed -nE 's/.* port ([0-9]+) .*/\1/p' "$folder/server")
  [[ -n $port ]] && break
  sleep 0.1
done
cat >"$folder/study.ini" <<END
kind = weak
model = $data/demo-model
text = $data/demo-heldout.txt
out = $folder/out
launcher = mpirun --oversubscribe --bind-to none -n {ranks}
ranks = 1,2
threads = 1
batch-size = 8,32
n-prompt = 32
repetitions = 2
no-roofs = true
END
"$moesaic" study run "$folder/study.ini" --log-level warning
"$moesaic" study predict "$folder/study.ini" --ranks 4,8 --log-level warning
"$moesaic" study report "$folder/study.ini" --log-level warning

# Another page shows the report in a frame and counts; the report has no scripts itself.
cat >"$folder/count.html" <<'END'
<!DOCTYPE html><html><body><iframe id="frame" width="1200" height="900"></iframe><script>
const frame = document.getElementById("frame");
frame.addEventListener("load", () => {
  const page = frame.contentWindow, svgs = [...page.document.querySelectorAll("figure svg")];
  const drawn = svgs.filter(s => s.getBBox().width > 0 && s.getBoundingClientRect().height > 40);
  const out = document.createElement("pre");
  out.textContent = "COUNTED figures=" + page.document.querySelectorAll("figure").length + " drawn=" + drawn.length +
    " scripts=" + page.document.scripts.length + " requests=" + page.performance.getEntriesByType("resource").length;
  document.body.append(out);
});
frame.src = location.hash.slice(1);
</script></body></html>
END
count() {  # of a page in the folder; its console goes to console
  timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking \
    --disable-component-update --no-first-run --user-data-dir="$folder/profile" \
    --host-resolver-rules="MAP * ~NOTFOUND, EXCLUDE 127.0.0.1" --enable-logging=stderr --virtual-time-budget=10000 \
    --dump-dom "http://127.0.0.1:$port/count.html#$1" 2>"$folder/log" |
    grep -oE 'COUNTED figures=[0-9]+ drawn=[0-9]+ scripts=[0-9]+ requests=[0-9]+' || true
  grep CONSOLE "$folder/log" >"$folder/console" || true
}
# What is looked for would be noticed.
echo '<figure><svg/></figure><img src="a.png"><img src="http://example.org/b.png"><script>console.error("no")</script>' \
  >"$folder/bad.html"
bad=$(count bad.html)
[[ $bad == "COUNTED figures=1 drawn=0 scripts=1 requests=2" && -s $folder/console ]] ||
  { echo "Chromium counts otherwise: $bad"; cat "$folder/log"; exit 1; }

good=$(count out/report.html)
echo "$good"
figures=$(grep -o '<figure id=' "$folder/out/report.html" | wc -l)
[[ $good == "COUNTED figures=$figures drawn=$figures scripts=0 requests=0" ]] || { echo "expected $figures figures"; exit 1; }
[[ ! -s $folder/console ]] || { cat "$folder/console"; exit 1; }
for plot in core_efficiency throughput phases exposed balance cost experts memory prediction; do
  grep -q "<figure id=\"$plot\"" "$folder/out/report.html" || { echo "no plot $plot"; exit 1; }
done
