/* A library beside a program. */

int beside(void)
{
    return 7;
}
