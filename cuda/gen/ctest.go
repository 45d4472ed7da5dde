package main

// emitResolverTest makes a program that prints the result of cuGetProcAddress for every name, version and
// kind of stream, and whether that is the right symbol.
func emitResolverTest(w *writer, s *spec) {
	w.cHeader("Asks cuGetProcAddress for every name at every version that changes an answer.")
	w.f(`#define __CUDA_API_VERSION_INTERNAL
#define PEGASUS_CUDA_ALL
#include "cuda.h"

#include <stdio.h>

static int failures, checks;

/* A name's symbol at a version, NULL when the version is too low. */
static void check(const char *name, int version, cuuint64_t flags, void (*want)(void))
{
	void *got = &failures;
	CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)-1;
	CUresult r = cuGetProcAddress_v2(name, &got, version, flags, &status);
	CUdriverProcAddressQueryResult wantStatus = want ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
	checks++;
	if (r || got != (void *)want || status != wantStatus) {
		printf("%%s %%d %%d: result %%d, status %%d, %%p, want %%p\n", name, version, (int)flags, r, status, got, (void *)want);
		failures++;
	}
	got = &failures;
	CUresult old = cuGetProcAddress(name, &got, version, flags);
	if (old != (want ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND) || got != (want ? (void *)want : (void *)&failures)) {
		printf("%%s %%d %%d: first ABI: result %%d\n", name, version, (int)flags, old);
		failures++;
	}
}

#define CHECK(name, version, flags, want) check(name, version, flags, (void (*)(void))(want))

static void expect(const char *what, CUresult got, CUresult want)
{
	checks++;
	if (got != want) {
		printf("%%s: %%d, want %%d\n", what, got, want);
		failures++;
	}
}

static void edges(void)
{
	void *pfn = &failures;
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
	int driver = 0;
	expect("driver version", cuDriverGetVersion(&driver), CUDA_SUCCESS);
	expect("null name", cuGetProcAddress_v2(NULL, &pfn, driver, 0, &status), CUDA_ERROR_INVALID_VALUE);
	expect("null result", cuGetProcAddress_v2("cuInit", NULL, driver, 0, &status), CUDA_ERROR_INVALID_VALUE);
	expect("null status", cuGetProcAddress_v2("cuInit", &pfn, driver, 0, NULL), CUDA_SUCCESS);
	expect("unknown flag", cuGetProcAddress_v2("cuInit", &pfn, driver, 4, &status), CUDA_ERROR_INVALID_VALUE);
	expect("newer than the driver", cuGetProcAddress_v2("cuInit", &pfn, driver + 1, 0, &status), CUDA_ERROR_INVALID_VALUE);
	pfn = &failures;
	expect("unknown name", cuGetProcAddress("cuNothing", &pfn, driver, 0), CUDA_ERROR_NOT_FOUND);
	expect("pointer of an unknown name, first ABI", pfn == &failures ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, CUDA_SUCCESS);
	expect("unknown name", cuGetProcAddress_v2("cuNothing", &pfn, driver, 0, &status), CUDA_SUCCESS);
	expect("status of an unknown name", (CUresult)status, (CUresult)CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	expect("pointer of an unknown name", pfn ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS, CUDA_SUCCESS);
	expect("suffixed name", cuGetProcAddress("cuMemAlloc_v2", &pfn, driver, 0), CUDA_ERROR_NOT_FOUND);
	expect("empty name", cuGetProcAddress("", &pfn, driver, 0), CUDA_ERROR_NOT_FOUND);
}

int main(void)
{
	edges();
`)
	for _, n := range s.Resolver {
		for flags := range 3 {
			rows := n.Legacy
			if flags == 2 && len(n.PerThread) > 0 {
				rows = n.PerThread
			}
			for _, version := range askedVersions(rows) {
				w.f("\tCHECK(\"%s\", %d, %d, %s);\n", n.Name, version, flags, answer(rows, version))
			}
		}
	}
	w.f("\tprintf(\"%%d checks, %%d failures\\n\", checks, failures);\n\treturn failures != 0;\n}\n")
}

// askedVersions returns the versions on both sides of every change, as far as the driver supports them at
// all.
func askedVersions(rows []resolverRow) []int {
	asked := map[int]bool{0: true, headerVersion: true}
	for _, r := range rows {
		asked[r.Version-1], asked[r.Version] = true, true
	}
	var list []int
	for v := range headerVersion + 1 {
		if asked[v] {
			list = append(list, v)
		}
	}
	return list
}

func answer(rows []resolverRow, version int) string {
	symbol := "NULL"
	for _, r := range rows {
		if r.Version <= version {
			symbol = r.Symbol
		}
	}
	return symbol
}

// emitABITest makes a file that compiles if and only if the header's structures have the layouts of the
// facts.
func emitABITest(w *writer, s *spec) {
	w.cHeader("Holds the structures of cuda.h to their layouts.")
	w.f("#include \"cuda.h\"\n\n#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)\n#define FIELD(type, field, at, bytes) \\\n\t_Static_assert(offsetof(type, field) == (at) && sizeof(((type *)0)->field) == (bytes), #type \".\" #field)\n\n")
	for _, tag := range sortedKeys(s.Structs) {
		st := s.Structs[tag]
		if !st.known() {
			continue
		}
		name := st.Kind + " " + tag
		w.f("SIZE(%s, %d);\n", name, st.Size)
		if overAligned[tag] == "" {
			w.f("_Static_assert(_Alignof(%s) == %d, \"%s\");\n", name, st.Align, tag)
		}
		for _, f := range st.Fields {
			w.f("FIELD(%s, %s, %d, %d);\n", name, f.Name, f.Offset, f.Size)
		}
	}
	seen := map[string]bool{}
	for _, tag := range sortedKeys(s.Enums) {
		for _, name := range byValue(s.Enums[tag].Values) {
			if !seen[name] {
				w.f("_Static_assert((long long)%s == %d, \"%s\");\n", name, s.Enums[tag].Values[name], name)
			}
			seen[name] = true
		}
	}
}
