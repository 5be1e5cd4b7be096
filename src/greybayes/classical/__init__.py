"""The classical methods: record by record, from the likelihood. `methods` lists them."""
