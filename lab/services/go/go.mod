module deburr.invalid/lab/fanout

go 1.20
