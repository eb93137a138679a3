"""Numbers of the ArrayRecord format that both sides need, beside those of Riegeli in kernels/blocks.py."""

# In the postscript, which names the footer.
MAGIC = 0x71930E704FDAE05E
# Where a first chunk can begin: behind the signature.
FIRST_CHUNK = 64
# The field of the footer's metadata that says dtype and shape of records; other readers skip what they do not know.
CONTENT_FIELD = 1000
