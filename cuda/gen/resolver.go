package main

func emitResolver(w *writer, s *spec) {
	w.cHeader("cuGetProcAddress: which symbol answers to a name, a version and a kind of default stream.")
	w.f(`#define __CUDA_API_VERSION_INTERNAL
#define PEGASUS_CUDA_ALL
#include "core/zz_impl.h"

#include <stdlib.h>
#include <string.h>

typedef void (*symbol)(void);

/* symbol answers requests for version and later ones, until the next row. */
struct row {
	int version;
	symbol symbol;
};

/* Rows begin at first; those for the per-thread stream, if others, follow the legacy ones. */
struct name {
	const char *name;
	unsigned short first;
	unsigned char legacy, perThread;
};

#define ROW(version, function) {version, (symbol)(function)}

static const struct row rows[] = {
`)
	type span struct{ first, legacy, perThread int }
	spans := map[string]span{}
	n := 0
	emit := func(rows []resolverRow) {
		for _, r := range rows {
			w.f("\tROW(%d, %s),\n", r.Version, r.Symbol)
			n++
		}
	}
	names := map[string]resolverName{}
	for _, r := range s.resolvable() {
		names[r.Name] = r
		spans[r.Name] = span{n, len(r.Legacy), len(r.PerThread)}
		emit(r.Legacy)
		emit(r.PerThread)
	}
	w.f("};\n\n/* Sorted by name. */\nstatic const struct name names[] = {\n")
	for _, name := range sortedKeys(names) {
		at := spans[name]
		w.f("\t{\"%s\", %d, %d, %d},\n", name, at.first, at.legacy, at.perThread)
	}
	w.f("%s", resolverCode)
}

const resolverCode = `};

static int compare(const void *key, const void *element)
{
	return strcmp(key, ((const struct name *)element)->name);
}

static CUdriverProcAddressQueryResult resolve(const char *key, int version, cuuint64_t flags, void **pfn)
{
	const struct name *n = bsearch(key, names, sizeof names / sizeof *names, sizeof *names, compare);
	if (!n)
		return CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	const struct row *row = rows + n->first;
	int count = n->legacy;
	if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && n->perThread) {
		row += n->legacy;
		count = n->perThread;
	}
	while (count > 0 && row[count - 1].version > version)
		count--;
	if (!count)
		return CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
	memcpy(pfn, &row[count - 1].symbol, sizeof *pfn);
	return CU_GET_PROC_ADDRESS_SUCCESS;
}

static int acceptable(const char *key, void **pfn, int version, cuuint64_t flags)
{
	int driver = 0;
	return key && pfn && flags <= CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM &&
	       !pg_cuDriverGetVersion(&driver) && version <= driver;
}

/* The first ABI leaves the pointer alone if there is nothing of that name; the second writes NULL and the reason. */
CUresult pg_cuGetProcAddress(const char *key, void **pfn, int cudaVersion, cuuint64_t flags)
{
	if (!acceptable(key, pfn, cudaVersion, flags))
		return CUDA_ERROR_INVALID_VALUE;
	return resolve(key, cudaVersion, flags, pfn) ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult pg_cuGetProcAddress_v2(const char *key, void **pfn, int cudaVersion, cuuint64_t flags, CUdriverProcAddressQueryResult *symbolStatus)
{
	if (!acceptable(key, pfn, cudaVersion, flags))
		return CUDA_ERROR_INVALID_VALUE;
	*pfn = NULL;
	CUdriverProcAddressQueryResult status = resolve(key, cudaVersion, flags, pfn);
	if (symbolStatus)
		*symbolStatus = status;
	return CUDA_SUCCESS;
}
`

func emitNames(w *writer, s *spec) {
	w.cHeader("Names of results, and the text of each.")
	w.f("#include \"core/zz_impl.h\"\n\n#include <stddef.h>\n\n")
	e := s.Enums["cudaError_enum"]
	table := func(function, what string, text func(name string) string) {
		w.f("static const char *%s(CUresult r)\n{\n\tswitch (r) {\n", function)
		for _, name := range byValue(e.Values) {
			w.f("\tcase %s: return %q;\n", name, text(name))
		}
		w.f("\tdefault: return NULL;\n\t}\n}\n\n")
		w.f("CUresult pg_cuGetError%s(CUresult error, const char **pStr)\n{\n\tif (!pStr)\n\t\treturn CUDA_ERROR_INVALID_VALUE;\n", what)
		w.f("\t*pStr = %s(error);\n\treturn *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;\n}\n\n", function)
	}
	table("name", "Name", func(name string) string { return name })
	table("words", "String", s.text)
}
