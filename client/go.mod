module example.com/payonce/client

go 1.24
