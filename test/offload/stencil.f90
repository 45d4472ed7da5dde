! OpenACC in Fortran: heat on a plate, until it changes little, and matrix products.
program stencil
  implicit none
  integer, parameter :: n = 96, m = 80
  real(8) :: old(0:n+1, 0:m+1), new(0:n+1, 0:m+1), change
  integer :: i, j, steps
  old = 0
  old(0, :) = 100
  old(:, 0) = [(real(i, 8), i = 0, n+1)]
  new = old
  steps = 0
  change = 1
  !$acc data copy(old) copyin(new)
  do while (change > 0.05d0 .and. steps < 200)
    change = 0
    !$acc parallel loop collapse(2) reduction(max: change)
    do j = 1, m
      do i = 1, n
        new(i, j) = 0.25d0 * (old(i-1, j) + old(i+1, j) + old(i, j-1) + old(i, j+1))
        change = max(change, abs(new(i, j) - old(i, j)))
      end do
    end do
    !$acc kernels
    old(1:n, 1:m) = new(1:n, 1:m)
    !$acc end kernels
    steps = steps + 1
  end do
  !$acc end data
  print '(a, i4, 3f14.8)', 'heat', steps, change, old(1, 1), sum(old)
  call product
contains
  subroutine product
    integer, parameter :: k = 50
    complex(8) :: a(k, k), b(k, k), c(k, k), s
    real(4) :: norm
    integer :: x, y, z
    do y = 1, k
      do x = 1, k
        a(x, y) = cmplx(x - y, x + y, 8) / 8
        b(x, y) = cmplx(mod(x * y, 7), mod(x + 2 * y, 5), 8)
      end do
    end do
    norm = 0
    !$acc parallel loop gang copyin(a, b) copyout(c) reduction(+: norm)
    do y = 1, k
      !$acc loop vector private(s) reduction(+: norm)
      do x = 1, k
        s = 0
        do z = 1, k
          s = s + a(x, z) * b(z, y)
        end do
        c(x, y) = s
        if (mod(x, 2) == 0) norm = norm + 1
      end do
    end do
    print '(a, 2f16.4, f10.1)', 'product', c(3, 4), norm
    print '(a, 2f16.4)', 'product', sum(c)
  end subroutine
end program
