# Rscript ar1.R FOLDER DATA: times TMB on the model of ar1.cpp, whose library is built in FOLDER. Prints JSON.
suppressMessages(library(TMB))
arguments <- commandArgs(TRUE)
source_of <- sub("--file=", "", grep("--file=", commandArgs(), value = TRUE))
file.copy(file.path(dirname(source_of), "ar1.cpp"), arguments[1])
y <- scan(arguments[2], quiet = TRUE)
setwd(arguments[1])
invisible(capture.output(compile("ar1.cpp")))
dyn.load(dynlib("ar1"))
fit <- function() {
  begin <- proc.time()[["elapsed"]]
  start <- list(b = 0, log_s = 0, p = 0, z = rep(0, length(y)))
  f <- MakeADFun(list(y = y), start, random = "z", DLL = "ar1", silent = TRUE)
  best <- nlminb(f$par, f$fn, f$gr)
  errors <- summary(sdreport(f), "fixed")
  list(seconds = proc.time()[["elapsed"]] - begin, mode = errors[, 1], sd = errors[, 2], value = best$objective)
}
first <- fit()
second <- fit()
numbers <- function(x) paste0("[", paste(format(x, digits = 12), collapse = ", "), "]")
cat(sprintf(
  '{"first": %f, "next": %f, "mode": %s, "sd": %s, "value": %.9f}\n',
  first$seconds, second$seconds, numbers(first$mode), numbers(first$sd), first$value
))
