"""What enters a call and what leaves it: arguments, arrays of other libraries, results."""
