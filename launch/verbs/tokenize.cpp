#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json.h"
#include "launch/job/agreement.h"
#include "launch/verbs/prompts.h"
#include "launch/verbs/verbs.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {
namespace {

void print_json(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  fmt::print("{}\n", JsonWriter()
                         .raw_field("ids", fmt::format("[{}]", fmt::join(ids, ", ")))
                         .field("text", tokenizer.decode(ids))
                         .text());
}

void print_table(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  for (const std::int32_t id : ids) {
    fmt::print("{:>8}  {}{}\n", id, tokenizer.token(id),
               tokenizer.is_special(id) ? "  (special)" : "");
  }
}

}  // namespace

void run_tokenize(Runtime& runtime) {
  const Options& options = runtime.options();
  agree(runtime.world(), [&] {
    if (!runtime.is_first()) return;
    require(!options.model.empty(), ErrorKind::usage, "no model: --model DIR says which");
    const std::vector<Prompt> prompts = read_prompts(options);
    const Tokenizer tokenizer = Tokenizer::from_directory(options.model);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const std::vector<std::int32_t> ids = tokenizer.encode(prompts[i].text, !options.no_special);
      if (options.json) {
        print_json(tokenizer, ids);
        continue;
      }
      if (prompts.size() > 1) fmt::print("{}--- {}\n", i == 0 ? "" : "\n", prompts[i].where);
      print_table(tokenizer, ids);
    }
  });
}

}  // namespace moesaic
