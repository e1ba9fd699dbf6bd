# Rscript crossed.R PACKAGE DATA: times glmmTMB or lme4 on binary rows with two crossed effects. Prints JSON.
arguments <- commandArgs(TRUE)
package <- arguments[1]
suppressMessages(library(package, character.only = TRUE))
d <- read.csv(arguments[2], colClasses = c(i = "factor", j = "factor"))
formula <- y ~ x0 + x1 + x2 + (1 | i) + (1 | j)
begin <- proc.time()[["elapsed"]]
if (package == "lme4") {
  f <- glmer(formula, d, binomial)
  fixed <- fixef(f)
} else {
  f <- glmmTMB(formula, d, binomial)
  fixed <- fixef(f)$cond
}
seconds <- proc.time()[["elapsed"]] - begin
mode <- paste0("[", paste(format(fixed, digits = 12), collapse = ", "), "]")
cat(sprintf('{"seconds": %f, "mode": %s, "value": %.9f}\n', seconds, mode, -as.numeric(logLik(f))))
