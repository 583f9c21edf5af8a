"""Everything that touches the GPU, and the calls that take arrays or pointers."""
