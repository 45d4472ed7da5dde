// OpenACC in C++: classes and templates in a simulation of bodies that attract each other.
#include <cmath>
#include <cstdio>
#include <vector>

template <typename T> struct Vector {
	T x, y, z;
	Vector operator+(const Vector &o) const { return {x + o.x, y + o.y, z + o.z}; }
	Vector operator-(const Vector &o) const { return {x - o.x, y - o.y, z - o.z}; }
	Vector operator*(T f) const { return {x * f, y * f, z * f}; }
	T dot(const Vector &o) const { return x * o.x + y * o.y + z * o.z; }
};

template <typename T> struct Body {
	Vector<T> at, speed;
	T mass;
};

template <typename T> static void step(Body<T> *bodies, Vector<T> *force, int n, T dt)
{
#pragma acc parallel loop present(bodies[0:n], force[0:n])
	for (int i = 0; i < n; i++) {
		Vector<T> sum = {0, 0, 0};
		for (int j = 0; j < n; j++) {
			Vector<T> d = bodies[j].at - bodies[i].at;
			T r2 = d.dot(d) + T(0.01), r = std::sqrt(r2);
			sum = sum + d * (bodies[j].mass / (r2 * r));
		}
		force[i] = sum;
	}
#pragma acc parallel loop present(bodies[0:n], force[0:n])
	for (int i = 0; i < n; i++) {
		bodies[i].speed = bodies[i].speed + force[i] * dt;
		bodies[i].at = bodies[i].at + bodies[i].speed * dt;
	}
}

template <typename T> static void run(const char *name, int digits)
{
	const int n = 300;
	std::vector<Body<T>> all(n);
	std::vector<Vector<T>> scratch(n);
	for (int i = 0; i < n; i++) {
		T a = T(i % 17) / 17, b = T(i % 29) / 29, c = T(i % 41) / 41;
		all[i] = {{a, b, c}, {b - c, c - a, a - b}, 1 + a};
	}
	Body<T> *bodies = all.data();
	Vector<T> *force = scratch.data();
#pragma acc data copy(bodies[0:n]) create(force[0:n])
	for (int s = 0; s < 5; s++)
		step(bodies, force, n, T(0.001));
	T energy = 0, mass = 0;
#pragma acc parallel loop reduction(+ : energy, mass) copyin(bodies[0:n])
	for (int i = 0; i < n; i++) {
		energy += bodies[i].mass * bodies[i].speed.dot(bodies[i].speed) / 2;
		mass += bodies[i].mass;
	}
	std::printf("%s %.*g %.*g %.*g %.*g\n", name, digits, double(bodies[7].at.x), digits, double(bodies[299].speed.z), digits,
		double(energy), digits, double(mass));
}

int main()
{
	run<double>("double", 10);
	run<float>("float", 4);
}
