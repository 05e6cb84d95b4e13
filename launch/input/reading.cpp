#include "launch/input/reading.h"

#include "comm/long_work.h"
#include "launch/job/agreement.h"

namespace moesaic {

void read_texts(const Runtime& runtime, const std::function<void(const ReadProgress&)>& body) {
  LongWork work(runtime.world(), "reading", waiting_notice(runtime.log(), "reading"));
  work.give_up_if([&] { return runtime.interruption().wanted(); });
  (void)runtime.interruption();  // all ranks listen from here on
  agree_on_work(runtime.world(), work, [&] {
    if (!runtime.is_first()) return;
    body([&](std::int64_t done, std::int64_t total) {
      work.advance(done, total);
      runtime.interruption().leave_if_wanted("while texts were read: nothing is lost");
    });
  });
}

}  // namespace moesaic
