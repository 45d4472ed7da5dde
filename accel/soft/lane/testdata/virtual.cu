/* What C++ needs of calls: virtual functions, function pointers, recursion,
 * structures by value, memory that a kernel allocates. Compiled by
 * guest/bench/kernels/generate.sh's command, with -fno-exceptions. */
#include "device.h"

extern "C" __device__ void *malloc(unsigned long);
extern "C" __device__ void free(void *);
inline __device__ void *operator new(unsigned long, void *p) { return p; }

struct Shape {
	int side;
	__device__ Shape(int side) : side(side) {}
	virtual __device__ int area() const = 0;
	virtual __device__ int twice() const { return 2 * area(); }
};

struct Square : Shape {
	using Shape::Shape;
	__device__ int area() const override { return side * side; }
};

struct Cube : Square {
	using Square::Square;
	__device__ int area() const override { return 6 * Square::area(); }
	__device__ int twice() const override { return 12 * side * side + 1; }
};

struct Pair {
	int low, high;
	long sum;
};

static __device__ __attribute__((noinline)) Pair split(Pair p, int depth)
{
	if (depth == 0 || p.low >= p.high)
		return p;
	const int middle = (p.low + p.high) / 2;
	const Pair a = split({p.low, middle, p.sum + 1}, depth - 1);
	const Pair b = split({middle + 1, p.high, p.sum + 2}, depth - 1);
	return {a.low + b.low, a.high + b.high, a.sum * 3 + b.sum};
}

typedef int (*Operation)(int, int);
static __device__ int add(int a, int b) { return a + b; }
static __device__ int sub(int a, int b) { return a - b; }
static __device__ int mul(int a, int b) { return a * b; }
__device__ const Operation operations[] = {add, sub, mul};

struct Node {
	int key;
	Node *left, *right;
};

static __device__ __attribute__((noinline)) Node *insert(Node *n, int key)
{
	if (!n) {
		n = (Node *)malloc(sizeof(Node));
		if (n)
			*n = {key, 0, 0};
		return n;
	}
	(key < n->key ? n->left : n->right) = insert(key < n->key ? n->left : n->right, key);
	return n;
}

static __device__ __attribute__((noinline)) int walk(Node *n, int rank, int *sum)
{
	if (!n)
		return rank;
	rank = walk(n->left, rank, sum);
	*sum += rank++ * n->key;
	rank = walk(n->right, rank, sum);
	free(n);
	return rank;
}

extern "C" __global__ void shapes(int *out)
{
	const int i = (int)firstElement();
	alignas(8) char room[sizeof(Cube)];
	Shape *s = i % 3 ? (Shape *)new (room) Square(i) : new (room) Cube(i);
	asm volatile("" : "+l"(s) : : "memory"); /* what it is, the compiler shall not know */
	out[i] = s->area() + 1000 * s->twice();
}

extern "C" __global__ void splits(long *out)
{
	const int i = (int)firstElement();
	const Pair p = split({0, i, 1}, i % 6);
	out[i] = p.low + 1000l * p.high + 1000000l * p.sum;
}

extern "C" __global__ void applies(int *out)
{
	const int i = (int)firstElement();
	out[i] = operations[i % 3](i, 7);
}

extern "C" __global__ void trees(int *out)
{
	const int i = (int)firstElement();
	Node *root = 0;
	unsigned x = (unsigned)i + 1;
	for (int k = 0; k < 1 + i % 9; k++) {
		x = x * 1103515245 + 12345;
		root = insert(root, (int)(x >> 16 & 1023));
	}
	int sum = 0;
	const int n = walk(root, 0, &sum);
	out[i] = sum * 16 + n;
}
