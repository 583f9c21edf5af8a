"""What is in PTX text, a cubin or a descriptor, without running it."""
