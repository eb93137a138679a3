"""Caching of compiled code on disk, for kernels and for compiled ops alike.

The invariant: compiled code is loaded only if a hash of everything it depends on is equal. That is

- the functions, what they call, the values they read and the options they are compiled with (`fingerprint`), with the
  extensions of Numba that they use (`extensions`),
- the versions of Python, Numba, llvmlite and other known packages, and the source of all kernels (`packages`),
- the signature and the processor (`files`).

Code that cannot be hashed is compiled in every process, and never stored. Code that is to be stored is compiled
together with copies of all it calls (`fresh_copy`): the originals may have been compiled with other values.

A file is whole, verified and private, or it is as good as absent (`files`, `folders`). One process compiles while the
others wait, for a bounded time. The folder of compiled ops is bounded in size, and the least recently used goes first
(`store`). Where nothing can be written, everything works, and nothing is stored.
"""
