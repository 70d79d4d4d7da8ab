"""vLLM engines behind the policy `vllm`: in this process or as servers, and how new weights reach them."""
