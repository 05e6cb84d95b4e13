#include <optional>
#include <string>

#include "base/output_file.h"
#include "launch/job/agreement.h"
#include "launch/job/verbs.h"
#include "launch/job/written_files.h"
#include "launch/sft/adapter_source.h"
#include "launch/sft/sft_output.h"
#include "launch/sft/sft_run.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {

void run_sft(Runtime& runtime) {
  const Options& options = runtime.options();
  agree(runtime.world(), [&] {
    check_data_options(options);
    require_apart(options);
    if (is_training(options)) check_run_options(options, runtime.is_first());
    const bool makes_file = runtime.is_first() && options.samples_out && options.samples_out != "-";
    if (!makes_file) return;
    require_apart_from_run("samples-out", *options.samples_out, options.output_dir);
    require_replaceable(*options.samples_out);
  });
  const std::optional<std::string> lora = adapter_source(options);
  if (lora != options.lora) {
    runtime.log().once(LogLevel::info, "--lora {} is not there: {} has modules, ranks and scales",
                       *options.lora, *lora);
  }
  const OpenModel model = open_model(runtime, lora);
  const SftData data = read_sft_data(runtime, model);
  if (is_training(options)) return train(runtime, model, data);
  runtime.log().once(LogLevel::info, "{}", samples_text(data.train, data.train_report));
  if (!runtime.is_first()) return;
  if (options.show_sample > 0) {
    show_samples(options, Tokenizer::from_directory(model.files.directory()), data.train);
  }
  if (options.samples_out) write_samples(*options.samples_out, data.train);
}

}  // namespace moesaic
