"""How a log density bends: its Hessian, Gauss-Newton and Fisher matrices, and what is kept of them."""
