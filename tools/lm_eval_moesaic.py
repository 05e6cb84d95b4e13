#!/usr/bin/env python3
"""lm-evaluation-harness on Moesaic: its command line, with one more model, "moesaic".

    pip install lm_eval transformers
    python tools/lm_eval_moesaic.py run --model moesaic --model_args model=DIR --tasks hellaswag

Arguments of the model (--model_args, with commas):
    model=DIR            checkpoint directory, or one that moesaic convert made
    command=TEXT         how the program is started, such as "mpirun -n 4 moesaic" (default: moesaic)
    options=TEXT         options of moesaic score and generate, such as "--expert-format int8 -t 8"
    max_length=N         tokens of a context (default: as many as the model was made for)
    max_gen_toks=N       most tokens that a task generates if it does not say (default: 256)
    add_bos_token=True   begin texts with the tokenizer's special tokens

All requests of a kind go through one start of the program.
"""

import json
import shlex
import subprocess
import tempfile
from pathlib import Path

import lm_eval.models  # noqa: F401  else its own models would not be known beside this one
from lm_eval.__main__ import cli_evaluate
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from transformers import AutoTokenizer


@register_model("moesaic")
class Moesaic(TemplateLM):
    def __init__(self, model, command="moesaic", options="", max_length=None, max_gen_toks=256,
                 add_bos_token=None, batch_size=None, max_batch_size=None, device=None):
        super().__init__()  # the last three are lm_eval's own and mean nothing here
        self.directory, self.command, self.options = str(model), str(command), str(options)
        self.tokenizer = AutoTokenizer.from_pretrained(self.directory)
        config = json.loads((Path(self.directory) / "config.json").read_text(encoding="utf-8"))
        self.max_length = int(max_length or config["max_position_embeddings"])
        self.max_gen_toks = int(max_gen_toks)
        self.add_bos_token = add_bos_token

    @property
    def eot_token_id(self):
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self):
        begin = self.tokenizer.bos_token_id
        return self.eot_token_id if begin is None else begin

    @property
    def tokenizer_name(self):
        return self.directory.replace("/", "__")

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return self.tokenizer.apply_chat_template(
            chat_history, tokenize=False, add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt)

    def tok_encode(self, string, add_special_tokens=None, **kwargs):
        if add_special_tokens is None:
            add_special_tokens = self.add_bos_token
        if add_special_tokens is None:
            return self.tokenizer.encode(string)
        return self.tokenizer.encode(string, add_special_tokens=add_special_tokens)

    def _run(self, verb, requests):
        """The lines that a verb prints about `requests`, in their order."""
        if not requests:
            return []
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "requests.jsonl"
            path.write_text("".join(json.dumps(request) + "\n" for request in requests))
            command = [*shlex.split(self.command), verb, "-m", self.directory, "-f", str(path),
                       "--ctx-size", str(self.max_length), "--json", *shlex.split(self.options)]
            result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if result.returncode != 0:
            raise RuntimeError(f"{shlex.join(command)} ended with exit code {result.returncode}")
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        lines = sorted((line for line in lines if "index" in line), key=lambda line: line["index"])
        for line in lines:
            if "error" in line:
                raise RuntimeError(f"request {line['index']}: {line['error']}")
        return lines

    def _loglikelihood_tokens(self, requests, **kwargs):
        """(log-likelihood, is it the greedy one) of each (texts, context ids, continuation ids)."""
        lines = self._run("score", [{"context": context, "continuation": continuation}
                                    for _, context, continuation in requests])
        return [(line["log_likelihood"], line["is_greedy"]) for line in lines]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        windows, owners = [], []
        for owner, request in enumerate(requests):
            pairs = get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]), prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length, context_len=1)
            for pair in map(make_disjoint_window, pairs):
                windows.append((None, *pair))
                owners.append(owner)
        sums = [0.0] * len(requests)
        for owner, (log_likelihood, _) in zip(owners, self._loglikelihood_tokens(windows)):
            sums[owner] += log_likelihood
        return sums

    def generate_until(self, requests, disable_tqdm=False):
        lines = []
        for request in requests:
            context, wishes = request.args
            until = wishes.get("until") or []
            most = int(wishes.get("max_gen_toks", self.max_gen_toks))
            if most >= self.max_length:
                raise ValueError(f"max_gen_toks {most} leaves nothing for the prompt of a context "
                                 f"of {self.max_length} (max_length)")
            sampling = {"temperature": 0}
            if wishes.get("do_sample"):
                sampling = {key: wishes[key] for key in ("temperature", "top_k", "top_p", "min_p")
                            if key in wishes}
            lines.append({"prompt": self.tok_encode(context)[-(self.max_length - most):],
                          "max_tokens": most, "stop": [until] if isinstance(until, str) else until,
                          **sampling})
        return [line["text"] for line in self._run("generate", lines)]


if __name__ == "__main__":
    cli_evaluate()
