// OpenMP in C++: templates, lambdas, pointers to member functions, complex numbers.
#include <complex>
#include <cstdio>
#include <vector>

#pragma omp declare target
struct Shape {
	double inner, outer;
	double (Shape::*area)() const;
	double square() const { return outer * outer; }
	double ring() const { return 3 * (outer * outer - inner * inner); }
};

template <typename F> static double integrate(F f, int n)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += f((i + 0.5) / n);
	return sum / n;
}
#pragma omp end declare target

static int escape(std::complex<double> c)
{
	std::complex<double> z = 0;
	for (int i = 0; i < 60; i++) {
		z = {z.real() * z.real() - z.imag() * z.imag() + c.real(), 2 * z.real() * z.imag() + c.imag()};
		if (z.real() * z.real() + z.imag() * z.imag() > 4)
			return i;
	}
	return 60;
}

int main()
{
	const int width = 60, height = 30, n = 200;
	std::vector<int> picture(width * height);
	int *pixels = picture.data();
#pragma omp target teams distribute parallel for collapse(2) map(from : pixels[0 : width * height])
	for (int y = 0; y < height; y++)
		for (int x = 0; x < width; x++)
			pixels[y * width + x] = escape({x * 3.0 / width - 2.25, y * 2.5 / height - 1.25});
	for (int y = 0; y < height; y++) {
		for (int x = 0; x < width; x++)
			std::putchar(" .:-=+*#%@"[pixels[y * width + x] * 9 / 60]);
		std::putchar('\n');
	}
	double areas = 0, integral = 0;
#pragma omp target teams distribute parallel for reduction(+ : areas) map(tofrom : areas)
	for (int i = 0; i < n; i++) {
		Shape shape = {double(i), i + 2.0, i % 3 ? &Shape::square : &Shape::ring};
		areas += (shape.*shape.area)();
	}
	double bend = 0.25;
#pragma omp target map(from : integral)
	integral = integrate([=](double x) { return x * x + bend * x; }, 64);
	std::printf("%.3f %.8f\n", areas, integral);
}
