/*
 * Zstandard frames (RFC 8878), in which newer compilers pack their images: the parts of the format that compressors
 * emit, without dictionaries and without verification of the checksum, since the resulting PTX is validated anyway.
 */
#include "image/zstd.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC 0xfd2fb528u

enum {
	BLOCK_MOST = 128 << 10,
	HUFFMAN_BITS = 11,
	TABLE_BITS = 9,
	SYMBOLS = 256,
};

/* --- bits --- */

/* A bit reader, forwards, or backwards from the last set bit. Beyond either end it returns zeros. */
struct bits {
	const uint8_t *bytes;
	int64_t length, at; /* in bits; a backward reader has yet to read those below at */
};

static unsigned high_bit(uint64_t n) { return 63 - (unsigned)__builtin_clzll(n); }

/* Returns n bits, at most 56, from an offset. */
static uint64_t bits_at(const struct bits *b, int64_t at, unsigned n)
{
	uint64_t value = 0;
	int64_t first = at >> 3, bytes = b->length >> 3;
	for (int i = 7; i >= 0; i--) {
		int64_t k = first + i;
		value = value << 8 | (k >= 0 && k < bytes ? b->bytes[k] : 0);
	}
	return value >> (at & 7) & ((UINT64_C(1) << n) - 1);
}

static uint64_t read_forward(struct bits *b, unsigned n)
{
	uint64_t value = bits_at(b, b->at, n);
	b->at += n;
	return value;
}

static uint64_t read_back(struct bits *b, unsigned n)
{
	b->at -= n;
	return bits_at(b, b->at, n);
}

static bool open_back(struct bits *b, const uint8_t *bytes, size_t n)
{
	if (n == 0 || bytes[n - 1] == 0)
		return false;
	*b = (struct bits){bytes, 8 * (int64_t)n, 8 * (int64_t)(n - 1) + high_bit(bytes[n - 1])};
	return true;
}

/* --- finite state entropy: a state is a symbol, and gives the number of bits that lead to the next state --- */

struct fse {
	unsigned bits; /* of a state */
	bool known;
	struct {
		uint16_t base;
		uint8_t symbol, bits;
	} state[1 << TABLE_BITS];
};

static void fse_build(struct fse *t, const int16_t *count, unsigned symbols, unsigned bits)
{
	unsigned size = 1u << bits, high = size, step = (size >> 1) + (size >> 3) + 3, at = 0;
	uint16_t next[SYMBOLS];
	t->bits = bits;
	t->known = true;
	for (unsigned s = 0; s < symbols; s++) {
		next[s] = count[s] < 0 ? 1 : (uint16_t)count[s];
		if (count[s] < 0) /* a probability below one: its state is at the end */
			t->state[--high].symbol = (uint8_t)s;
	}
	for (unsigned s = 0; s < symbols; s++)
		for (int i = 0; i < count[s]; i++) {
			t->state[at].symbol = (uint8_t)s;
			do
				at = (at + step) & (size - 1);
			while (at >= high);
		}
	for (unsigned i = 0; i < size; i++) {
		unsigned x = next[t->state[i].symbol]++, n = bits - high_bit(x);
		t->state[i].bits = (uint8_t)n;
		t->state[i].base = (uint16_t)((x << n) - size);
	}
}

static void fse_one(struct fse *t, uint8_t symbol)
{
	t->bits = 0;
	t->known = true;
	t->state[0].symbol = symbol;
	t->state[0].bits = 0;
	t->state[0].base = 0;
}

/* Decodes a table's description; returns its length in bytes, or -1. */
static int64_t fse_read(struct fse *t, const uint8_t *in, size_t n, unsigned symbolsMost, unsigned bitsMost)
{
	struct bits b = {in, 8 * (int64_t)n, 0};
	int16_t count[SYMBOLS] = {0};
	unsigned bits = (unsigned)read_forward(&b, 4) + 5, symbols = 0;
	if (bits > bitsMost)
		return -1;
	int left = 1 << bits;
	while (left > 0 && symbols < symbolsMost) {
		unsigned width = high_bit((uint64_t)left + 1) + 1;
		uint64_t low = (UINT64_C(1) << (width - 1)) - 1, spare = (UINT64_C(1) << width) - 2 - (uint64_t)left;
		uint64_t value = bits_at(&b, b.at, width);
		if ((value & low) < spare) {
			value &= low;
			b.at += width - 1;
		} else {
			value -= value > low ? spare : 0;
			b.at += width;
		}
		int c = (int)value - 1;
		count[symbols++] = (int16_t)c;
		left -= c < 0 ? 1 : c;
		for (unsigned zeros = 3; c == 0 && zeros == 3;) {
			zeros = (unsigned)read_forward(&b, 2);
			symbols += zeros;
			if (symbols > symbolsMost)
				return -1;
		}
	}
	if (left != 0 || b.at > b.length)
		return -1;
	fse_build(t, count, symbols, bits);
	return (b.at + 7) / 8;
}

static unsigned fse_first(const struct fse *t, struct bits *b) { return (unsigned)read_back(b, t->bits); }

static unsigned fse_next(const struct fse *t, unsigned state, struct bits *b)
{
	return t->state[state].base + (unsigned)read_back(b, t->state[state].bits);
}

/* --- literals --- */

struct huffman {
	unsigned bits; /* length of the longest code, 0: no table yet */
	struct {
		uint8_t symbol, bits;
	} code[1 << HUFFMAN_BITS];
};

/* Decodes compressed weights: two states alternate until the bits are used up. */
static int unpack_weights(const uint8_t *in, size_t n, uint8_t *weight)
{
	struct fse t;
	struct bits b;
	int64_t head = fse_read(&t, in, n, 13, 6);
	if (head < 0 || !open_back(&b, in + head, n - (size_t)head))
		return -1;
	unsigned state[2];
	int count = 0;
	state[0] = fse_first(&t, &b);
	state[1] = fse_first(&t, &b);
	if (b.at < 0)
		return -1;
	for (int turn = 0; count < SYMBOLS - 2; turn ^= 1) {
		weight[count++] = t.state[state[turn]].symbol;
		if (b.at < t.state[state[turn]].bits) {
			weight[count++] = t.state[state[turn ^ 1]].symbol;
			return count;
		}
		state[turn] = fse_next(&t, state[turn], &b);
	}
	return -1;
}

/*
 * Decodes the description of a tree; returns its length in bytes, or -1. The last weight is the remainder of the total.
 */
static int64_t huffman_read(struct huffman *h, const uint8_t *in, size_t n)
{
	uint8_t weight[SYMBOLS] = {0};
	int64_t used;
	int count;
	if (n == 0)
		return -1;
	if (in[0] < 128) {
		used = 1 + in[0];
		count = used <= (int64_t)n ? unpack_weights(in + 1, in[0], weight) : -1;
	} else {
		count = in[0] - 127;
		used = 1 + (count + 1) / 2;
		for (int i = 0; i < count && used <= (int64_t)n; i++)
			weight[i] = i % 2 ? in[1 + i / 2] & 15 : in[1 + i / 2] >> 4;
	}
	if (count < 1 || used > (int64_t)n)
		return -1;
	uint32_t sum = 0;
	for (int i = 0; i < count; i++) {
		if (weight[i] > HUFFMAN_BITS)
			return -1;
		sum += weight[i] ? 1u << (weight[i] - 1) : 0;
	}
	if (sum == 0)
		return -1;
	unsigned bits = high_bit(sum) + 1;
	uint32_t left = (1u << bits) - sum;
	if (bits > HUFFMAN_BITS || (left & (left - 1)))
		return -1;
	weight[count++] = (uint8_t)(high_bit(left) + 1);
	unsigned at = 0;
	for (unsigned w = 1; w <= bits; w++)
		for (int s = 0; s < count; s++)
			for (unsigned i = 0; weight[s] == w && i < 1u << (w - 1); i++, at++) {
				h->code[at].symbol = (uint8_t)s;
				h->code[at].bits = (uint8_t)(bits + 1 - w);
			}
	h->bits = bits;
	return used;
}

static bool huffman_expand(const struct huffman *h, const uint8_t *in, size_t n, uint8_t *out, size_t outBytes)
{
	struct bits b;
	if (!open_back(&b, in, n))
		return false;
	for (size_t i = 0; i < outBytes; i++) {
		uint64_t k = bits_at(&b, b.at - h->bits, h->bits);
		out[i] = h->code[k].symbol;
		b.at -= h->code[k].bits;
	}
	return b.at == 0;
}

/* State carried from block to block. */
struct frame {
	struct huffman huffman;
	struct fse lengths, offsets, matches;
	uint64_t recent[3]; /* recent offsets */
	uint8_t *out;
	uint64_t outBytes, at;
	size_t literalBytes;
	uint8_t literals[BLOCK_MOST];
};

static bool four_streams(struct frame *f, const uint8_t *in, size_t n)
{
	size_t part = (f->literalBytes + 3) / 4, at = 6;
	if (n < 6 || 3 * part > f->literalBytes)
		return false;
	for (int i = 0; i < 4; i++) {
		size_t bytes = i < 3 ? (size_t)(in[2 * i] | in[2 * i + 1] << 8) : n - at;
		if (bytes > n - at || !huffman_expand(&f->huffman, in + at, bytes, f->literals + (size_t)i * part, i < 3 ? part : f->literalBytes - 3 * part))
			return false;
		at += bytes;
	}
	return true;
}

/* Decodes a block's literals; returns their encoded length in bytes, or -1. */
static int64_t read_literals(struct frame *f, const uint8_t *in, size_t n)
{
	static const uint8_t heads[2][4] = {{1, 2, 1, 3}, {3, 3, 4, 5}}, widths[2][4] = {{5, 12, 5, 20}, {10, 10, 14, 18}};
	if (n == 0)
		return -1;
	unsigned type = in[0] & 3, format = in[0] >> 2 & 3;
	bool packed = type >= 2;
	struct bits b = {in, 8 * (int64_t)n, !packed && format % 2 == 0 ? 3 : 4};
	size_t head = heads[packed][format];
	f->literalBytes = (size_t)read_forward(&b, widths[packed][format]);
	size_t bytes = packed ? (size_t)read_forward(&b, widths[packed][format]) : type == 0 ? f->literalBytes : 1;
	if (f->literalBytes > BLOCK_MOST || head > n || bytes > n - head)
		return -1;
	const uint8_t *from = in + head;
	int64_t tree = 0;
	switch (type) {
	case 0:
		memcpy(f->literals, from, bytes);
		return (int64_t)(head + bytes);
	case 1:
		memset(f->literals, from[0], f->literalBytes);
		return (int64_t)(head + bytes);
	case 2:
		tree = huffman_read(&f->huffman, from, bytes);
	}
	if (tree < 0 || f->huffman.bits == 0)
		return -1;
	from += tree;
	bool good = format == 0 ? huffman_expand(&f->huffman, from, bytes - (size_t)tree, f->literals, f->literalBytes)
		: four_streams(f, from, bytes - (size_t)tree);
	return good ? (int64_t)(head + bytes) : -1;
}

/* --- sequences: a number of literals, then a match --- */

static const struct code {
	uint32_t base;
	uint8_t bits;
} lengthCodes[36] = {
	{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {6, 0}, {7, 0}, {8, 0}, {9, 0}, {10, 0}, {11, 0}, {12, 0}, {13, 0}, {14, 0}, {15, 0},
	{16, 1}, {18, 1}, {20, 1}, {22, 1}, {24, 2}, {28, 2}, {32, 3}, {40, 3}, {48, 4}, {64, 6}, {128, 7}, {256, 8}, {512, 9}, {1024, 10},
	{2048, 11}, {4096, 12}, {8192, 13}, {16384, 14}, {32768, 15}, {65536, 16},
}, matchCodes[53] = {
	{3, 0}, {4, 0}, {5, 0}, {6, 0}, {7, 0}, {8, 0}, {9, 0}, {10, 0}, {11, 0}, {12, 0}, {13, 0}, {14, 0}, {15, 0}, {16, 0}, {17, 0}, {18, 0},
	{19, 0}, {20, 0}, {21, 0}, {22, 0}, {23, 0}, {24, 0}, {25, 0}, {26, 0}, {27, 0}, {28, 0}, {29, 0}, {30, 0}, {31, 0}, {32, 0}, {33, 0},
	{34, 0}, {35, 1}, {37, 1}, {39, 1}, {41, 1}, {43, 2}, {47, 2}, {51, 3}, {59, 3}, {67, 4}, {83, 4}, {99, 5}, {131, 7}, {259, 8},
	{515, 9}, {1027, 10}, {2051, 11}, {4099, 12}, {8195, 13}, {16387, 14}, {32771, 15}, {65539, 16},
};

/* The encoding of one of the three fields of a sequence. */
struct part {
	unsigned symbols, bitsMost, usualBits;
	const int16_t *usual;
};

static const int16_t usualLengths[36] = {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1,
	-1, -1, -1, -1};
static const int16_t usualMatches[53] = {1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
	1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};
static const int16_t usualOffsets[29] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};
static const struct part lengthPart = {36, 9, 6, usualLengths}, matchPart = {53, 9, 6, usualMatches}, offsetPart = {32, 8, 5, usualOffsets};
enum { USUAL_OFFSETS = 29 };

/* Decodes the table of a field in a block; returns its length in bytes, or -1. */
static int64_t read_part(const struct part *p, unsigned mode, struct fse *t, const uint8_t *in, size_t n)
{
	switch (mode) {
	case 0:
		fse_build(t, p->usual, p == &offsetPart ? USUAL_OFFSETS : p->symbols, p->usualBits);
		return 0;
	case 1:
		if (n == 0 || in[0] >= p->symbols)
			return -1;
		fse_one(t, in[0]);
		return 1;
	case 2:
		return fse_read(t, in, n, p->symbols, p->bitsMost);
	default:
		return t->known ? 0 : -1;
	}
}

/* Returns the offset for a value: values up to 3 select a recent offset. 0 is invalid. */
static uint64_t take_offset(struct frame *f, uint64_t value, bool noLiterals)
{
	uint64_t *r = f->recent, offset = value - 3;
	unsigned which = value > 3 ? 3 : (unsigned)value - 1 + noLiterals;
	if (value <= 3)
		offset = which < 3 ? r[which] : r[0] - 1;
	if (which > 1)
		r[2] = r[1];
	if (which > 0) {
		r[1] = r[0];
		r[0] = offset;
	}
	return offset;
}

static bool put_literals(struct frame *f, size_t *used, uint64_t n)
{
	if (n > f->literalBytes - *used || n > f->outBytes - f->at)
		return false;
	memcpy(f->out + f->at, f->literals + *used, n);
	*used += n;
	f->at += n;
	return true;
}

static bool put_match(struct frame *f, uint64_t offset, uint64_t n)
{
	if (offset == 0 || offset > f->at || n > f->outBytes - f->at)
		return false;
	for (; n > 0; n--, f->at++)
		f->out[f->at] = f->out[f->at - offset];
	return true;
}

static bool run_sequences(struct frame *f, const uint8_t *in, size_t n, unsigned count, size_t *used)
{
	struct bits b;
	if (!open_back(&b, in, n))
		return false;
	unsigned length = fse_first(&f->lengths, &b), offset = fse_first(&f->offsets, &b), match = fse_first(&f->matches, &b);
	for (unsigned i = 0; i < count && b.at >= 0; i++) {
		const struct code *l = &lengthCodes[f->lengths.state[length].symbol], *m = &matchCodes[f->matches.state[match].symbol];
		unsigned o = f->offsets.state[offset].symbol;
		uint64_t value = (UINT64_C(1) << o) + read_back(&b, o);
		uint64_t matched = m->base + read_back(&b, m->bits), literals = l->base + read_back(&b, l->bits);
		if (i + 1 < count) {
			length = fse_next(&f->lengths, length, &b);
			match = fse_next(&f->matches, match, &b);
			offset = fse_next(&f->offsets, offset, &b);
		}
		if (b.at < 0 || !put_literals(f, used, literals) || !put_match(f, take_offset(f, value, literals == 0), matched))
			return false;
	}
	return b.at == 0;
}

static bool read_sequences(struct frame *f, const uint8_t *in, size_t n)
{
	size_t used = 0, at = 1;
	if (n == 0)
		return false;
	unsigned count = in[0];
	if (count >= 128) {
		at = count == 255 ? 3 : 2;
		if (n < at)
			return false;
		count = count == 255 ? (unsigned)(in[1] | in[2] << 8) + 0x7f00 : ((count - 128) << 8) + in[1];
	}
	if (count == 0)
		return at == n && put_literals(f, &used, f->literalBytes);
	if (n <= at)
		return false;
	unsigned modes = in[at++];
	const struct {
		const struct part *part;
		struct fse *table;
		unsigned mode;
	} parts[] = {{&lengthPart, &f->lengths, modes >> 6}, {&offsetPart, &f->offsets, modes >> 4 & 3}, {&matchPart, &f->matches, modes >> 2 & 3}};
	for (int i = 0; i < 3; i++) {
		int64_t head = read_part(parts[i].part, parts[i].mode, parts[i].table, in + at, n - at);
		if (head < 0 || (size_t)head > n - at)
			return false;
		at += (size_t)head;
	}
	return run_sequences(f, in + at, n - at, count, &used) && put_literals(f, &used, f->literalBytes - used);
}

/* --- frames --- */

static bool read_block(struct frame *f, unsigned type, const uint8_t *in, size_t n)
{
	if (type == 0 || type == 1) {
		size_t bytes = n;
		if (bytes > f->outBytes - f->at)
			return false;
		if (type == 0)
			memcpy(f->out + f->at, in, bytes);
		else
			memset(f->out + f->at, in[0], bytes);
		f->at += bytes;
		return true;
	}
	int64_t head = type == 2 ? read_literals(f, in, n) : -1;
	return head >= 0 && read_sequences(f, in + head, n - (size_t)head);
}

static bool read_blocks(struct frame *f, const uint8_t *in, uint64_t n)
{
	for (bool last = false; !last;) {
		if (n < 3)
			return false;
		uint32_t head = (uint32_t)(in[0] | in[1] << 8 | in[2] << 16), type = head >> 1 & 3, size = head >> 3;
		uint32_t bytes = type == 1 ? 1 : size;
		in += 3;
		n -= 3;
		if (bytes > n || size > BLOCK_MOST || !read_block(f, type, in, size))
			return false;
		in += bytes;
		n -= bytes;
		last = head & 1;
	}
	return f->at == f->outBytes;
}

bool zstd_expand(const uint8_t *in, uint64_t inBytes, uint8_t *out, uint64_t outBytes)
{
	static const uint8_t names[] = {0, 1, 2, 4}, sizes[] = {0, 2, 4, 8};
	uint32_t magic;
	if (inBytes < 5)
		return false;
	memcpy(&magic, in, sizeof magic);
	uint8_t what = in[4];
	bool single = what & 0x20;
	uint64_t head = 5 + (uint64_t)!single + names[what & 3] + (what >> 6 ? sizes[what >> 6] : single);
	if (magic != MAGIC || (what & 8) || (what & 3) || head > inBytes)
		return false;
	struct frame *f = malloc(sizeof *f);
	if (!f)
		return false;
	f->huffman.bits = 0;
	f->lengths.known = f->offsets.known = f->matches.known = false;
	memcpy(f->recent, (const uint64_t[]){1, 4, 8}, sizeof f->recent);
	f->out = out;
	f->outBytes = outBytes;
	f->at = 0;
	bool good = read_blocks(f, in + head, inBytes - head);
	free(f);
	return good;
}
