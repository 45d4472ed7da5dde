/* coulomb computes the electric potential round the atoms of a molecule, a plane in
 * each round. */
#include <math.h>
#include <stdlib.h>

#include "bench.h"

EMBED_PTX(coulomb);

enum { Atoms = 1024, Threads = 256, Planes = 8 };

static const float Spacing = 0.5f;

struct atom {
	float x, y, z, charge;
};

static struct atom atoms[Atoms];
static CUdeviceptr datoms, dpotential;
static CUfunction compute;
static unsigned plane;

static void prepare(struct bench *x)
{
	size_t n = x->options.size;
	float across = Spacing * (float)n;

	bench_fill(&atoms[0].x, Atoms * 4, 1, 0, 1);
	for (struct atom *a = atoms; a < atoms + Atoms; a++)
		*a = (struct atom){ a->x * across, a->y * across, 0.25f + Planes * a->z, 2 * a->charge - 1 };
	for (struct atom *a = atoms; a < atoms + Atoms; a++) /* none of them in a plane */
		a->z = floorf(a->z) + 0.25f + 0.5f * (a->z - floorf(a->z));
	datoms = bench_upload(atoms, sizeof atoms);
	dpotential = bench_upload(NULL, n * n * sizeof(float));
	compute = bench_function(x, "coulomb");
	x->work = (double)(n * n) * Atoms;
}

static void launch(struct bench *x)
{
	plane = (plane + 1) % Planes;
	unsigned side = (unsigned)x->options.size, n = Atoms;
	float spacing = Spacing, height = (float)plane;
	void *args[] = { &dpotential, &side, &spacing, &height, &datoms, &n };

	bench_launch(x, compute, bench_blocks((size_t)side * side, Threads, 1024), Threads, args);
}

static double at(double px, double py, double pz)
{
	double sum = 0;

	for (const struct atom *a = atoms; a < atoms + Atoms; a++) {
		double dx = px - a->x, dy = py - a->y, dz = pz - a->z;
		sum += a->charge / sqrt(dx * dx + dy * dy + dz * dz);
	}
	return sum;
}

static bool check(struct bench *x)
{
	size_t n = x->options.size;
	float *got = bench_download(dpotential, n * n * sizeof *got);
	bool right = true;

	for (size_t i = 0; i < n * n && right; i += 1 + n * n / 4096)
		right = bench_close("potential", i, got[i], at(Spacing * (double)(i % n), Spacing * (double)(i / n), plane), 2e-3);
	free(got);
	return right;
}

static void release(struct bench *x)
{
	(void)x;
	CHECK(cuMemFree(datoms));
	CHECK(cuMemFree(dpotential));
}

int main(int argc, char **argv)
{
	static const struct workload w = {
		.name = "coulomb", .about = "computes the electric potential of atoms in a plane", .unit = "distances", .size_means = "points along a side",
		.ptx = ptx_coulomb, .size = 64, .least = 1, .most = 8192,
		.prepare = prepare, .launch = launch, .check = check, .release = release,
	};
	return bench_main(argc, argv, &w);
}
