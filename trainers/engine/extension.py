"""What is added to vLLM's workers: a method that takes weights from a file. Imported by vLLM, inside the worker's process.

On a CPU, vLLM packs the linear layers' weights for its kernels when the model is loaded, and throws the originals away: later weights then
fail, or (tied embeddings) go where nobody reads them. Importing this module switches the packing off before the model is made.
"""

from __future__ import annotations

from typing import Any


def keep_weights() -> None:
    """Let CPU workers compute with the model's own parameters, so that a later copy into them is what counts."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from vllm import _custom_ops
    from vllm.model_executor.layers import utils

    _custom_ops._supports_onednn = False
    utils.check_cpu_sgl_kernel = lambda *shape: False


keep_weights()


class Extension:
    """Methods of every worker, called through `collective_rpc` by name."""

    model_runner: Any
    model_config: Any

    def agentgym_load(self, path: str) -> str:
        """Load a safetensors file of parameters under their Hugging Face names; return how many tensors there were.

        The path and not the tensors travel: these would have to be pickled. On a GPU vLLM's layerwise reload puts them into the layout of the
        kernels, as its own weight transfer does; on a CPU the parameters are what is computed with (see above).
        """
        from safetensors.torch import load_file
        from vllm.platforms import current_platform

        model, weights = self.model_runner.model, load_file(path)
        if current_platform.is_cpu():
            model.load_weights(weights.items())
            return str(len(weights))
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        initialize_layerwise_reload(model)
        model.load_weights((n, w.to(self.model_runner.device)) for n, w in weights.items())
        finalize_layerwise_reload(model, self.model_runner.model_config)
        return str(len(weights))
