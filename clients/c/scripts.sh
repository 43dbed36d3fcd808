#!/bin/sh
# Print the scripts as C: their bytes, and the SHA1 for EVALSHA.
set -eu
for name in apply apply_blocks show status take; do
    printf 'static const unsigned char source_%s[] = {' "$name"
    od -An -v -tx1 "lua/$name.lua" | sed 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g'
    printf '};\n'
done
printf 'static const struct { const char *source; size_t size; const char *sha; } scripts[] = {\n'
for name in apply apply_blocks show status take; do
    sha=$(sha1sum "lua/$name.lua")
    printf '    {(const char *)source_%s, sizeof source_%s, "%s"},\n' "$name" "$name" "${sha%% *}"
done
printf '};\n'
