// A latent AR(1) with Poisson counts, for TMB (Kristensen et al. 2016).
#include <TMB.hpp>

template <class Type>
Type objective_function<Type>::operator()() {
  DATA_VECTOR(y);
  PARAMETER(b);
  PARAMETER(log_s);
  PARAMETER(p);
  PARAMETER_VECTOR(z);
  Type s = exp(log_s), phi = 2 / (1 + exp(-p)) - 1;
  Type f = -dnorm(z(0), Type(0), s / sqrt(1 - phi * phi), true);
  for (int t = 1; t < y.size(); t++) f -= dnorm(z(t), phi * z(t - 1), s, true);
  for (int t = 0; t < y.size(); t++) f -= dpois(y(t), exp(b + z(t)), true);
  return f;
}
