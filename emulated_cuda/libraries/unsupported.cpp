// Libraries of which nothing is emulated: CuPy finds them, and each call says that it is not
// supported. The build adds the calls.
