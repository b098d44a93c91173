"""Small programs on the packages that people load and save models with. `programs.py NAME FOLDER` runs one, in an empty
folder, and prints as JSON what it computed and the hash of every file that it wrote. Nothing comes from a network.

    python programs.py NAME FOLDER                   # by stock
    python -m libst.compat programs.py NAME FOLDER   # by libst
"""

import hashlib
import json
import os
import sys
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "DIFFUSERS_VERBOSITY": "error"}

import torch


def digest(tensors):
    """Of names, dtypes, shapes and bytes."""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        tensor = tensor.detach().cpu().contiguous()
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:16]


def llama(tied=False):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, vocab_size=512)
    return LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=tied)).eval()


def logits(model):
    with torch.no_grad():
        return digest({"logits": model(torch.arange(24).reshape(2, 12)).logits})


def again(model, folder, **options):
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(folder, **options).eval()
    return [logits(model), logits(loaded), digest(loaded.state_dict())]


def transformers_one_file(folder):
    model = llama()
    model.save_pretrained(folder)
    return again(model, folder)


def transformers_shards(folder):
    model = llama()
    model.save_pretrained(folder, max_shard_size="100KB")
    return again(model, folder)


def transformers_shards_over_shards(folder):
    model = llama()
    model.save_pretrained(folder, max_shard_size="100KB")
    model.save_pretrained(folder, max_shard_size="300KB")
    return again(model, folder)


def transformers_bf16(folder):
    model = llama().to(torch.bfloat16)
    model.save_pretrained(folder)
    return again(model, folder, dtype=torch.bfloat16)


def transformers_other_dtype(folder):
    model = llama()
    model.save_pretrained(folder)
    return again(model, folder, dtype=torch.float16)


def transformers_tied(folder):
    model = llama(tied=True)
    model.save_pretrained(folder)
    return again(model, folder)


def transformers_encoder(folder):
    from transformers import AutoModel, BertConfig, BertModel

    torch.manual_seed(0)
    sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=100)
    model = BertModel(BertConfig(**sizes)).eval()
    model.save_pretrained(folder)
    return digest(AutoModel.from_pretrained(folder).state_dict())


def transformers_device_map(folder):
    model = llama()
    model.save_pretrained(folder, max_shard_size="100KB")
    return again(model, folder, device_map="cpu")


def safetensors_save_model(folder):
    from safetensors.torch import load_model, save_model

    model, other = llama(tied=True), llama(tied=True)
    save_model(model, str(folder / "model.safetensors"))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    missing, unexpected = load_model(other, str(folder / "model.safetensors"))
    return [sorted(missing), sorted(unexpected), logits(other)]


def accelerate_dispatch(folder):
    from accelerate import init_empty_weights, load_checkpoint_and_dispatch

    model = llama()
    model.save_pretrained(folder, max_shard_size="100KB")
    with init_empty_weights():
        empty = llama()
    loaded = load_checkpoint_and_dispatch(empty, folder, device_map={"": "cpu"})
    return [logits(model), logits(loaded)]


def accelerate_offload(folder):
    from accelerate import init_empty_weights, load_checkpoint_and_dispatch

    model = llama()
    model.save_pretrained(folder, max_shard_size="100KB")
    with init_empty_weights():
        empty = llama()
    places = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.layers.2": "disk"}
    places |= {"model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "disk"}
    loaded = load_checkpoint_and_dispatch(empty, folder, device_map=places, offload_folder=str(folder / "offload"))
    return [logits(model), logits(loaded)]


def accelerate_save_model(folder):
    from accelerate import Accelerator

    Accelerator(cpu=True).save_model(llama(), folder, max_shard_size="100KB")
    return sorted(path.name for path in folder.iterdir())


def accelerate_save_state(folder):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(llama())
    accelerator.save_state(folder / "state")
    with torch.no_grad():
        model.lm_head.weight.zero_()
    accelerator.load_state(folder / "state")
    return logits(model)


def peft_adapter(folder):
    from peft import LoraConfig, PeftModel, get_peft_model

    torch.manual_seed(1)
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    adapted = get_peft_model(llama(), config).eval()
    adapted.save_pretrained(folder)
    loaded = PeftModel.from_pretrained(llama(), folder).eval()
    return [logits(adapted), logits(loaded), logits(loaded.merge_and_unload())]


def peft_in_transformers(folder):
    from peft import LoraConfig

    torch.manual_seed(1)
    model, other = llama(), llama()
    model.add_adapter(LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False))
    model.save_pretrained(folder)
    other.load_adapter(str(folder))
    return [logits(model), logits(other)]


def unet():
    from diffusers import UNet2DModel

    torch.manual_seed(0)
    blocks = dict(down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    return UNet2DModel(
        sample_size=8, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8, **blocks
    ).eval()


def image(pipeline):
    pipeline.set_progress_bar_config(disable=True)
    made = pipeline(num_inference_steps=2, generator=torch.Generator().manual_seed(0), output_type="np").images
    # Where the weights lie in memory decides how sums are rounded, by stock, too.
    return [digest(pipeline.unet.state_dict()), torch.from_numpy(made).mul(100).round().int().sum().item() // 10]


def diffusers_pipeline(folder):
    from diffusers import DDPMPipeline, DDPMScheduler, DiffusionPipeline

    pipeline = DDPMPipeline(unet=unet(), scheduler=DDPMScheduler(num_train_timesteps=10))
    pipeline.save_pretrained(folder)
    return [image(pipeline), image(DiffusionPipeline.from_pretrained(folder))]


def diffusers_shards(folder):
    from diffusers import UNet2DModel

    model = unet()
    model.save_pretrained(folder, max_shard_size="200KB")
    return [digest(model.state_dict()), digest(UNet2DModel.from_pretrained(folder).state_dict())]


def diffusers_autoencoder(folder):
    from diffusers import AutoencoderKL

    torch.manual_seed(0)
    AutoencoderKL(block_out_channels=(32,), norm_num_groups=8).save_pretrained(folder, variant="fp16")
    loaded = AutoencoderKL.from_pretrained(folder, variant="fp16", torch_dtype=torch.float16)
    return digest(loaded.state_dict())


def diffusers_single_file(folder):
    from diffusers import AutoencoderKL
    from safetensors.torch import load_file, save_file

    torch.manual_seed(0)
    model = AutoencoderKL(block_out_channels=(32,), norm_num_groups=8)
    save_file(model.state_dict(), folder / "vae.safetensors")
    return [digest(load_file(folder / "vae.safetensors")), digest(model.state_dict())]


def torch_distributed_checkpoint(folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter

    tensors = dict(llama().state_dict())
    names = {name: 1 + i % 2 for i, name in enumerate(tensors)}
    dcp.save(tensors, storage_writer=HuggingFaceStorageWriter(str(folder), fqn_to_index_mapping=names), no_dist=True)
    empty = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    dcp.load(empty, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    return [digest(tensors), digest(empty)]


def torch_distributed_consolidation(folder):
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file
    from torch.distributed.checkpoint import HuggingFaceStorageWriter

    tensors = dict(llama().state_dict())
    (folder / "parts").mkdir()
    writer = HuggingFaceStorageWriter(str(folder / "parts"), save_distributed=True, enable_consolidation=False)
    dcp.save(tensors, storage_writer=writer, no_dist=True)
    from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files

    consolidate_safetensors_files(str(folder / "parts"), str(folder / "whole"), {name: 1 for name in tensors})
    loaded = {}
    for path in sorted((folder / "whole").glob("*.safetensors")):
        loaded |= load_file(path)
    return [digest(tensors), digest(loaded)]


PROGRAMS = [name for name, thing in list(globals().items()) if getattr(thing, "__code__", None) and
            thing.__code__.co_varnames[:1] == ("folder",) and thing.__code__.co_argcount == 1]  # fmt: skip


def _spelled(metadata):
    """As stock and libst write it."""
    return json.dumps(metadata, separators=(",", ":"), ensure_ascii=False).encode()


def file_digest(path):
    """Of its bytes, with the metadata in the order of its keys: stock writes several in a random one."""
    content = path.read_bytes()
    if path.suffix == ".safetensors":
        metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {})
        content = content.replace(_spelled(metadata), _spelled(dict(sorted(metadata.items()))), 1)
    return hashlib.sha256(content).hexdigest()[:16]


def main():
    name, folder = sys.argv[1], Path(sys.argv[2])
    answer = globals()[name](folder)
    files = {
        str(path.relative_to(folder)): file_digest(path)
        for path in sorted(folder.rglob("*.safetensors*"))
        if path.is_file()
    }
    print("ANSWER " + json.dumps({"by": sys.modules["safetensors"].safe_open.__module__, "is": answer, "files": files}))


if __name__ == "__main__":
    main()
