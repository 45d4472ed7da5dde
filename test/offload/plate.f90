! OpenMP in Fortran: waves on a plate, an array expression, a histogram.
module waves
  implicit none
  integer, parameter :: n = 64
contains
  pure real(8) function bump(i, j)
    !$omp declare target
    integer, intent(in) :: i, j
    bump = 1d0 / (1d0 + (i - 32)**2 + (j - 21)**2)
  end function
end module

program plate
  use waves
  implicit none
  real(8) :: past(n, n), now(n, n), next(n, n), energy, highest
  integer :: i, j, t, bins(0:9), k
  !$omp target data map(from: now) map(alloc: past, next)
  !$omp target teams distribute parallel do collapse(2)
  do j = 1, n
    do i = 1, n
      now(i, j) = bump(i, j)
      past(i, j) = now(i, j)
      next(i, j) = 0
    end do
  end do
  do t = 1, 20
    !$omp target teams distribute parallel do simd collapse(2)
    do j = 2, n - 1
      do i = 2, n - 1
        next(i, j) = 2 * now(i, j) - past(i, j) + 0.25d0 * (now(i-1, j) + now(i+1, j) + now(i, j-1) + now(i, j+1) - 4 * now(i, j))
      end do
    end do
    !$omp target teams distribute parallel do
    do j = 1, n
      past(:, j) = now(:, j)
      now(:, j) = next(:, j)
    end do
  end do
  !$omp end target data
  energy = 0
  highest = -1
  bins = 0
  !$omp target teams distribute parallel do reduction(+: energy) reduction(max: highest) map(tofrom: bins, energy, highest)
  do j = 1, n
    do i = 1, n
      energy = energy + nint(1d6 * now(i, j))
      highest = max(highest, now(i, j))
      k = mod(abs(nint(1d4 * now(i, j))), 10)
      !$omp atomic
      bins(k) = bins(k) + 1
    end do
  end do
  print '(a, f14.1, f12.9, f12.9)', 'waves', energy, highest, now(32, 21)
  print '(10i6)', bins
end program
