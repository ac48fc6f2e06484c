// SPDX-License-Identifier: GPL-2.0-only OR MIT
// The host's main: inputs of each kernel from standard input, results to standard output.
int main(void)
{
    for (unsigned i = 0; i < sizeof(hosts) / sizeof(*hosts); i++) {
        u32 arguments[2];
        if (fread(in, 4, INPUTS, stdin) != INPUTS || fread(cells, 8, CELLS, stdin) != CELLS ||
            fread(arguments, 4, 2, stdin) != 2)
            return 1;
        for (unsigned j = 0; j < ITEMS * 64; j++)
            out[j] = 0;
        hosts[i](in, out, cells, arguments[0], arguments[1]);
        fwrite(out, 8, ITEMS * results[i], stdout);
        fwrite(cells, 8, CELLS, stdout);
    }
    return 0;
}
