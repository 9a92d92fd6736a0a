"""Workers: deliveries of readers in, mini-transactions to the lake out, receipts into the progress map."""
