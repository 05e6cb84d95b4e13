#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/memory.h"
#include "launch/plot/svg_frame.h"
#include "launch/results/result_table.h"
#include "launch/study/study_report.h"
#include "launch/study/study_results.h"

namespace moesaic {
namespace {

constexpr std::string_view kStyle =
    "body{font-family:sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;font-size:13px}th,td{border:1px solid #ccc;padding:3px 7px;"
    "text-align:right}th{background:#f2f2f2}td.t{text-align:left}svg{max-width:100%;height:auto}"
    ".wide{overflow-x:auto}tr.shared{color:#777}tr.failed{background:#fbeaea}";

std::string cell(const ResultField& field) {
  return fmt::format("<td{}>{}</td>", field.is_text ? " class=\"t\"" : "", xml_text(field.value));
}

std::string optional_text(const std::optional<double>& value) {
  return value ? short_number(*value) : "";
}

/// Money for a million tokens; nothing without a price.
std::string money(const Measurement& m, const ReportOptions& options) {
  if (!options.price_per_node_hour) return "";
  const double hours = static_cast<double>(m.nodes) * m.seconds / 3600;
  return short_number(*options.price_per_node_hour * hours * 1e6 / static_cast<double>(m.tokens));
}

/// The columns of the table and of points.csv.
ResultLine line_of(const StudyRow& row, std::size_t number, const std::string& label,
                   const ReportOptions& options) {
  const PointRecord& record = row.record;
  const Measurement m = record.measurement.value_or(Measurement{.ranks = record.ranks});
  const bool is_there = record.measurement.has_value();
  const auto whole = [&](std::int64_t n) { return is_there ? fmt::format("{}", n) : ""; };
  const auto real = [&](double value) { return is_there ? short_number(value) : ""; };
  return {{"number", fmt::format("{}", number)},
          {"ranks", fmt::format("{}", m.ranks)},
          {"nodes", whole(m.nodes)},
          {"threads", whole(m.threads)},
          {"cores", whole(m.cores)},
          {"shared", m.is_oversubscribed ? "yes" : "", true},
          {"values", label, true},
          {"tokens", whole(m.tokens)},
          {"seconds", real(m.seconds)},
          {"ci95_s", optional_text(m.ci95)},
          {"tokens_per_second", real(m.tokens_per_second())},
          {"speedup", optional_text(row.speedup)},
          {"efficiency", optional_text(row.efficiency)},
          {"core_efficiency", optional_text(row.core_efficiency)},
          {"exposed_share", real(m.exposed_share)},
          {"late_s", real(m.late_seconds)},
          {"transfer_s", real(m.transfer_seconds)},
          {"intra_bytes", whole(m.intra_bytes)},
          {"inter_bytes", whole(m.inter_bytes)},
          {"messages", whole(m.messages)},
          {"rows_max_over_mean", real(m.rows_max_over_mean)},
          {"node_peak_bytes", whole(m.node_peak_bytes)},
          {"node_planned_bytes", whole(m.node_planned_bytes)},
          {"load_seconds", real(m.load_seconds)},
          {"roof_share", optional_text(m.roof_share)},
          {"core_hours_per_million", is_there ? short_number(core_hours(m)) : ""},
          {"money_per_million", is_there ? money(m, options) : "", true},
          {"disturbed", whole(m.disturbed)},
          {"status", std::string(record.status()), true},
          {"point", record.id, true}};
}

std::vector<ResultLine> lines_of(const std::vector<StudyRow>& rows, const ReportOptions& options) {
  const std::vector<std::string> labels = group_labels(rows);
  std::vector<ResultLine> lines;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    lines.push_back(line_of(rows[i], i + 1, labels[i], options));
  }
  return lines;
}

std::string table_html(const std::vector<StudyRow>& rows, const ReportOptions& options) {
  const std::vector<ResultLine> lines = lines_of(rows, options);
  std::string html = "<div class=\"wide\"><table><tr>";
  for (const ResultField& field : lines.front()) {
    html += fmt::format("<th>{}</th>", xml_text(field.key));
  }
  html += "</tr>\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& measurement = rows[i].record.measurement;
    const bool shares = measurement && measurement->is_oversubscribed;
    html += rows[i].record.error ? "<tr class=\"failed\">"
            : shares             ? "<tr class=\"shared\">"
                                 : "<tr>";
    for (const ResultField& field : lines[i]) html += cell(field);
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string failures_html(const std::vector<StudyRow>& rows) {
  std::string html;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& error = rows[i].record.error;
    if (!error) continue;
    html += fmt::format("<li>{}: exit code {}: {}</li>\n", i + 1, error->exit_code,
                        xml_text(error->last_words));
  }
  return html.empty() ? "" : "<h2>Failed points</h2>\n<ul>\n" + html + "</ul>\n";
}

std::string skipped_html(const std::vector<StudyRow>& rows) {
  std::string html;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string& why = rows[i].record.skipped;
    if (!why.empty()) html += fmt::format("<li>{}: {}</li>\n", i + 1, xml_text(why));
  }
  return html.empty() ? "" : "<h2>Skipped points</h2>\n<ul>\n" + html + "</ul>\n";
}

void add(std::set<std::string>& values, const std::string& value) {
  if (!value.empty()) values.insert(value);
}

std::string joined(const std::set<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : "; ") + value;
  return text;
}

/// With what the points were measured.
std::string provenance_html(const std::vector<StudyRow>& rows) {
  std::map<std::string, std::set<std::string>> found;
  for (const StudyRow& row : rows) {
    add(found["measured"], row.record.launch.start.substr(0, 10));
    add(found["link"], row.record.link);
    if (!row.record.measurement) continue;
    const Measurement& m = *row.record.measurement;
    const Provenance& from = m.provenance;
    add(found["program"], from.version + (from.commit.empty() ? "" : " " + from.commit) +
                              (from.is_dirty ? " (changed)" : ""));
    add(found["compiler"], from.compiler);
    add(found["MPI"], from.mpi);
    add(found["CPU"], from.cpu);
    add(found["instruction set"], from.isa);
    add(found["governor"], from.governor);
    add(found["routing"], m.routing);
    add(found["rows move by"], m.transport);
    for (const std::string& host : from.hosts) add(found["hosts"], host);
  }
  std::string html = "<table>\n";
  for (const auto& [name, values] : found) {
    if (values.empty()) continue;
    html += fmt::format("<tr><th>{}</th><td class=\"t\">{}</td></tr>\n", name,
                        xml_text(joined(values)));
  }
  return html + "</table>\n";
}

}  // namespace

std::string report_html(const std::vector<StudyRow>& rows, const std::vector<ReportPlot>& plots,
                        const ReportOptions& options) {
  const std::string title = xml_text(options.title);
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<link rel=\"icon\" href=\"data:,\"><title>{0}</title>\n<style>{1}</style></head>\n"
      "<body><h1>{0}</h1>\n<p>A {2} study, job {3}: {4} points.</p>\n",
      title, kStyle, xml_text(rows.front().record.kind), xml_text(rows.front().record.job),
      rows.size());
  html += provenance_html(rows);
  for (const ReportPlot& plot : plots) {
    html += fmt::format("<h2>{}</h2>\n<figure id=\"{}\">{}<figcaption>{}</figcaption></figure>\n",
                        xml_text(plot.title), xml_text(plot.name), plot.svg, xml_text(plot.note));
  }
  html +=
      "<h2>Points</h2>\n" + table_html(rows, options) + failures_html(rows) + skipped_html(rows);
  return html +
         "<p>Seconds are the mean of the repetitions and ci95_s half of its 95 % interval, which "
         "one repetition has none of. Points whose threads share cores (grey) say what an "
         "efficiency by cores can say, and nothing of speed-up.</p>\n</body></html>\n";
}

std::string points_csv(const std::vector<StudyRow>& rows, const ReportOptions& options) {
  return result_table(lines_of(rows, options), ResultForm::csv);
}

}  // namespace moesaic
