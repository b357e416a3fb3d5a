"""Holds PDPool's knowledge of vLLM against vLLM itself.

usage: compare.py FILE

FILE comes from TestInterop of package engine. Flags: each exists under each of
its names and takes what we think. Lines: vLLM's parser and configuration classes
take every rendered command and read from it what we meant. Sides: vLLM refuses a
layout exactly where our rules do.
"""

import collections
import json
import os
import pathlib
import sys
import tempfile
import types

from vllm.config import CacheConfig, KVTransferConfig, ModelConfig, ParallelConfig, VllmConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

try:
    from vllm.entrypoints.common.cli_args import make_arg_parser, validate_parsed_serve_args
except ImportError:  # up to 0.32.0
    from vllm.entrypoints.openai.cli_args import make_arg_parser, validate_parsed_serve_args

HOST_IP = "127.0.0.1"


def serve_parser():
    """The parser of `vllm serve`, which has the model as its first argument."""
    parser = FlexibleArgumentParser()
    commands = parser.add_subparsers(dest="subparser")
    return parser, make_arg_parser(commands.add_parser("serve"))


def takes(action):
    """What an action takes, in our words."""
    if action.nargs == 0:
        return "toggle"
    return "many" if action.nargs in ("+", "*") else "one"


def compare_flags(serve, flags):
    known = {name: action for action in serve._actions for name in action.option_strings}
    for flag in flags:
        for name in flag["names"]:
            if name == "--model":  # a command of its own reads it for `serve`
                continue
            action = known.get(name)
            if action is None:
                yield f"{name}: vLLM has no such flag"
            elif takes(action) != {"object": "one"}.get(flag["takes"], flag["takes"]):
                yield f"{name}: vLLM's takes {takes(action)}, ours {flag['takes']}"


def expand(argument):
    """What the kubelet makes of an argument."""
    return argument.replace("$(VLLM_HOST_IP)", HOST_IP).replace("$$(", "$(")


def compare_line(parser, line, model):
    """Has vLLM parse a command; its model is one of this disk, as nothing is fetched."""
    os.environ.update(line["env"])
    assert line["args"][0] == line["want"]["model"], line
    want = line["want"] | {"model": model}
    try:
        args = parser.parse_args(["serve", model, *map(expand, line["args"][1:])])
        args.model = getattr(args, "model_tag", None) or args.model
        validate_parsed_serve_args(args)
        engine = AsyncEngineArgs.from_cli_args(args)
        transfer = engine.kv_transfer_config
        if not isinstance(transfer, KVTransferConfig):
            transfer = KVTransferConfig(**transfer)
    except (SystemExit, ValueError, TypeError) as error:
        yield f"{line['name']}: {error!r} on {line['args']}"
        return
    for name, value in want.items():
        got = transfer.kv_role if name == "kv_role" else getattr(args, name, None) if name == "port" else getattr(engine, name)
        if got != value:
            yield f"{line['name']}: {name} is {got!r}, not {value!r}"


def model_folder(directory, geometry):
    """A model of the geometry, of which there is nothing but config.json."""
    heads, mla = geometry["attentionHeads"], geometry["kind"] == "MLA"
    path = pathlib.Path(directory) / f"{geometry['kind']}-{heads}-{geometry['kvHeads']}"
    config = {
        "architectures": ["DeepseekV3ForCausalLM" if mla else "MixtralForCausalLM"], "model_type": "deepseek_v3" if mla else "mixtral",
        "num_attention_heads": heads, "num_key_value_heads": heads if mla else geometry["kvHeads"], "hidden_size": 64 * heads,
        "intermediate_size": 128, "moe_intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 320, "max_position_embeddings": 4096,
        "num_local_experts": 8, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
        "n_shared_experts": 1, "torch_dtype": "bfloat16", "head_dim": 64,
    }
    if mla:
        config |= {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "q_lora_rank": 64}
        del config["head_dim"]
    if not path.exists():
        path.mkdir()
        (path / "config.json").write_text(json.dumps(config))
    return str(path)


def refused(model, side):
    """vLLM's own verdict on a layout: the message of its error, or None."""
    layout = side["layout"]
    try:
        parallel = ParallelConfig(
            tensor_parallel_size=layout["tp"], decode_context_parallel_size=layout["dcp"],
            cp_kv_cache_interleave_size=layout["interleave"], distributed_executor_backend="mp",
        )
        model.verify_with_parallel_config(parallel)
        # The method needs these parts of a whole configuration, which a GPU would be needed for.
        VllmConfig.validate_block_size(types.SimpleNamespace(
            cache_config=CacheConfig(block_size=side["blockSize"]), parallel_config=parallel, kv_transfer_config=None,
        ))
    except (ValueError, AssertionError) as error:
        return str(error)
    return None


def compare_sides(sides, directory):
    verdicts, models = collections.Counter(), {}
    for side in sides:
        folder = model_folder(directory, side["geometry"])
        if folder not in models:
            models[folder] = ModelConfig(model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=4096)
        theirs, ours = refused(models[folder], side), side["refused"]
        verdicts[theirs is None] += 1
        if (theirs is not None) != bool(ours):
            yield f"{side}: vLLM says {theirs!r}, we say {ours}"
    print(f"{verdicts[True]} layouts admitted and {verdicts[False]} refused by vLLM")


def main(file):
    data = json.loads(pathlib.Path(file).read_text())
    parser, serve = serve_parser()
    differences = list(compare_flags(serve, data["flags"]))
    with tempfile.TemporaryDirectory() as directory:
        model = model_folder(directory, {"kind": "MLA", "attentionHeads": 128, "kvHeads": 1})
        for line in data["lines"]:
            differences += compare_line(parser, line, model)
        differences += compare_sides(data["sides"], directory)
    for difference in differences:
        print(difference)
    print(f"{len(data['flags'])} flags, {len(data['lines'])} commands, {len(data['sides'])} layouts; differences: {len(differences)}")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
