"""Constants of the ArrayRecord format for reader and writer; those of Riegeli are in kernels/blocks.py."""

# In the postscript, which points to the footer.
MAGIC = 0x71930E704FDAE05E
# Earliest position of a chunk: after the signature.
FIRST_CHUNK = 64
# Field of the footer's metadata with dtype and shape of the records; other readers skip unknown fields.
CONTENT_FIELD = 1000
